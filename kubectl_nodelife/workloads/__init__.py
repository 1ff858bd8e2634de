"""Pure rules that several users share: budgets, eviction, scheduling, replacement."""
