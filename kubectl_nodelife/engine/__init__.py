"""What controllers run in: settings, cache, events, actions, timers, rate limits, the loop."""
