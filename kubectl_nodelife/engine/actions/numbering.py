"""Gives each action its number, by which it is known from then on."""

from __future__ import annotations

from msgspec.structs import force_setattr, replace

from kubectl_nodelife.engine.actions import Action


class ActionNumbers:
    """Counts from `next_id` on, so that one who remembers it never gives a number twice."""

    def __init__(self, next_id: int = 1) -> None:
        self.next_id = next_id

    def give(self, action: Action) -> Action:
        """The action with a new number: itself, or a copy where it has one already."""
        if action.id:
            action = replace(action)
        force_setattr(action, "id", self.next_id)
        self.next_id += 1
        return action

    def give_all(self, actions: list[Action]) -> None:
        """The same for a list, in its order; a copy takes the place of its action."""
        number = self.next_id
        for i, action in enumerate(actions):
            if action.id:
                actions[i] = action = replace(action)
            force_setattr(action, "id", number)
            number += 1
        self.next_id = number

    def ensure(self, action: Action) -> None:
        """Number the action unless it has been."""
        if not action.id:
            self.give(action)
