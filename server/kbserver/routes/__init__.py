"""The routes, one blueprint a file. A route loads, calls one method of the core, dumps and returns."""

from flask import Blueprint

from kbserver.routes import facts, ops, reason, rules

BLUEPRINTS: tuple[Blueprint, ...] = (ops.bp, facts.bp, rules.bp, reason.bp)
