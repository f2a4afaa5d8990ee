"""Function names in recorded recipes: their names in earlier versions, and today's.

A record holds a recipe as `isocost.recipe.describe` wrote it, with qualified function names ("module:function"). When a
function moves, its old name is added to `MOVED`; `isocost.moved` has the modules that moved whole. Every comparison
of a recorded recipe with a recipe of this version reads the record through `today`, so that old runs resume and old
comparisons are audited as before. Records themselves are never rewritten. Needs no torch.
"""

from __future__ import annotations

from typing import Any

from isocost.moved import MODULES

MOVED = {
    "isocost.parts.allocate:by_shortfall": "isocost.methods.dars:allocate",
    "isocost.parts.allocate:by_spread": "isocost.methods.rolloutgdro:allocate",
    "isocost.parts.allocate:while_it_pays": "isocost.methods.v05:allocate",
    "isocost.parts.choose:at_the_dial": "isocost.methods.scaler:choose",
    "isocost.parts.choose:by_belief": "isocost.methods.vade:choose",
    "isocost.parts.choose:targeted": "isocost.methods.dots:choose",
    "isocost.parts.choose:unfinished_first": "isocost.methods.april:choose",
    "isocost.parts.choose:unretired": "isocost.methods.scalerl:choose",
    "isocost.parts.enrich:entropy": "isocost.methods.ettrl:enrich",
    "isocost.parts.enrich:lag": "isocost.methods.areal:lag",
    "isocost.parts.enrich:values": "isocost.methods.ppo:enrich",
    "isocost.parts.forced:anytime": "isocost.methods.brpo:play",
    "isocost.parts.forced:halted": "isocost.methods.mrt:play",
    "isocost.parts.forced:interrupted": "isocost.methods.scalerl:play",
    "isocost.parts.guide:with_beginning": "isocost.methods.pope:guide",
    "isocost.parts.improve:decoupled": "isocost.methods.areal:improve",
    "isocost.parts.improve:least_variance": "isocost.methods.vcpo:improve",
    "isocost.parts.improve:restarted": "isocost.methods.kimi:improve",
    "isocost.parts.improve:weighed": "isocost.methods.mcgrpo:improve",
    "isocost.parts.improve:with_critic": "isocost.methods.ppo:improve",
    "isocost.parts.loss:entropy_bonus": "isocost.methods.isoeasy:entropy_bonus",
    "isocost.parts.loss:plus": "isocost.methods.isoeasy:plus",
    "isocost.parts.loss:regressed": "isocost.methods.kimi:loss",
    "isocost.parts.loss:reinforce": "isocost.methods.reinforce:loss",
    "isocost.parts.loss:sequence_clipped": "isocost.methods.gspo:loss",
    "isocost.parts.loss:to_reference": "isocost.methods.isoeasy:to_reference",
    "isocost.parts.loss:truncated": "isocost.methods.cispo:loss",
    "isocost.parts.pace:cycled": "isocost.methods.siri:pace",
    "isocost.parts.pace:widened": "isocost.methods.tti:pace",
    "isocost.parts.reward:agreed": "isocost.methods.ettrl:reward",
    "isocost.parts.reward:told": "isocost.methods.ettrl:told",
    "isocost.parts.reward:verified_and_short": "isocost.methods.gdpo:reward",
    "isocost.parts.reward:verified_unless_cut": "isocost.methods.dapo:reward",
    "isocost.parts.reward:verified_with_faults": "isocost.methods.roc:reward",
    "isocost.parts.rounds:continued": "isocost.methods.rc:play",
    "isocost.methods.rc:walked": "isocost.strategies.rounds:play",
    "isocost.parts.rounds:walked": "isocost.strategies.rounds:play",
    "isocost.parts.schedule:confidence": "isocost.methods.arrol:confidence",
    "isocost.parts.schedule:first_back": "isocost.methods.april:first_back",
    "isocost.parts.schedule:first_groups": "isocost.methods.april:schedule",
    "isocost.parts.schedule:pruned": "isocost.methods.arrol:schedule",
    "isocost.parts.select:best_of": "isocost.methods.bonrlb:select",
    "isocost.parts.select:between": "isocost.methods.balanced:select",
    "isocost.parts.select:clean_right": "isocost.methods.roc:select",
    "isocost.parts.select:right": "isocost.methods.fbc:select",
    "isocost.parts.taught:consistently": "isocost.methods.adhint:loss",
    "isocost.parts.taught:hinted": "isocost.methods.adhint:play",
    "isocost.parts.taught:imitating": "isocost.parts.improve:imitating",
    "isocost.parts.taught:one_token": "isocost.methods.otr:play",
    "isocost.parts.taught:plainly": "isocost.methods.int_:loss",
    "isocost.parts.taught:repaired": "isocost.methods.int_:play",
    "isocost.parts.track:trigrams": "isocost.methods.dots:trigrams",
    "isocost.parts.tree:entropies": "isocost.methods.ettrl:entropies",
    "isocost.parts.tree:forked": "isocost.methods.ettrl:play",
    "isocost.parts.weight:fixed_length": "isocost.methods.drgrpo:weight",
    "isocost.parts.weight:prompt_mean": "isocost.methods.cispo:weight",
    "isocost.parts.weight:rollout_sum": "isocost.methods.reinforce:weight",
    "isocost.parts.weight:unless_cut": "isocost.methods.dapo:unless_cut",
}


def today(recorded: Any) -> Any:
    """A recorded recipe, or a part of one, with today's function names. Other data is returned unchanged."""
    if isinstance(recorded, dict):
        return {k: _function(v) if k == "fn" and isinstance(v, str) else today(v) for k, v in recorded.items()}
    if isinstance(recorded, list | tuple):
        return [today(x) for x in recorded]
    return recorded


def _function(name: str) -> str:
    module, colon, function = MOVED.get(name, name).partition(":")
    return f"{MODULES.get(module, module)}{colon}{function}"
