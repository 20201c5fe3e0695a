"""Detection of facts in a window that lose a contradiction with a stored fact or a conclusion."""

from __future__ import annotations

from array import array

from kbcore.context.capacity import FactKey, RankedCandidate
from kbcore.context.contradictions import Clashes, Side, stated_times
from kbcore.context.proofs.evidence import Witness
from kbcore.state.partition import StoredRelation
from kbplanner.engine.backend import Attribute
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom


class Judge:
    """Check of facts before they enter a window; conclusions are compared only with these facts."""

    def __init__(self, witness: Witness, clashes: Clashes) -> None:
        self._witness = witness
        self._clashes = clashes
        self._checked: dict[FactKey, bool] = {}
        self._contested: set[FactKey] = set()
        self._alone: dict[StoredRelation, bool] = {}
        self._partitions = {partition.name: partition for partition in witness.supply.partitions}

    def loses(self, fact: RankedCandidate) -> bool:
        """Return whether a fact is on the losing side of a contradiction.

        Sets `fact.contradicted` if the opposite is known too, on either side.
        """
        lost = self._decided(fact)
        ranked = fact.ranked
        fact.contradicted = fact.key in self._contested or (
            ranked is not None and (ranked.stored, ranked.row_id) in self._clashes.contested
        )
        return lost

    def _decided(self, fact: RankedCandidate) -> bool:
        ranked = fact.ranked
        if ranked is not None and self._is_alone(ranked.stored):
            return (
                ranked.stored,
                ranked.row_id,
            ) in self._clashes.losers  # stored facts of both signs have been compared
        if fact.key not in self._checked:
            self._checked[fact.key] = self._loses(fact)
        return self._checked[fact.key]

    def _is_alone(self, stored: StoredRelation) -> bool:
        """Return whether no rule derives the opposite of the facts of a relation."""
        is_alone = self._alone.get(stored)
        if is_alone is None:
            derived = self._witness.reasoner.tenant.rules.visible(stored.scope).derived
            is_alone = self._alone[stored] = stored.schema.opposite not in derived
        return is_alone

    def _loses(self, fact: RankedCandidate) -> bool:
        ranked = fact.ranked
        if ranked is not None and (ranked.stored, ranked.row_id) in self._clashes.losers:
            return True
        row = fact.row
        partition = self._partitions[row["scope"]]
        schema = RelationSchema(row["predicate"], len(row["args"]), row["negated"])
        concluded = schema in self._witness.reasoner.tenant.rules.visible(partition.name).derived
        stored = partition.get(schema)
        if not concluded and (stored is None or not stored.relation.counts().visible):
            return False
        if row["metadata"].get("basis") == "absence":
            return False
        other = self._witness.first(
            partition, Atom(row["predicate"], tuple(row["args"]), row["negated"])
        )
        if other is None or (ranked is not None and other.answer.ranked is not None):
            return False
        sides = _side(fact), _side(other.answer)
        positive, negative = sides if not row["negated"] else sides[::-1]
        stays = self._clashes.add(row["predicate"], row["args"], positive, negative)
        lost = stays is row["negated"]
        loser = other.answer.ranked if not lost else ranked
        if loser is not None:
            self._clashes.losers.add((loser.stored, loser.row_id))
        self._checked[other.answer.key] = not lost
        self._contested.update((fact.key, other.answer.key))
        return lost


def _side(fact: RankedCandidate) -> Side:
    confidence, ranked = fact.row["confidence"], fact.ranked
    if ranked is None:
        return Side(fact.salience, confidence, fact.created_at)
    row = array("I", [ranked.row_id])
    priority = ranked.stored.relation.attributes(Attribute.PRIORITY, row)[0]
    (stated_at,) = stated_times(ranked.stored, row)
    return Side(fact.salience, confidence, stated_at, priority)
