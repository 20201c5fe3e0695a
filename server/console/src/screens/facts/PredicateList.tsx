// The predicates of the scope with the numbers of their facts and rules.
import { useMemo } from "react";

import { useAddress } from "../../address";
import type { Schemas } from "../../api/client";

const MAX_SHOWN = 200;

interface Properties {
  predicates: readonly Schemas["Predicate"][];
  selected: string | null;
  onSelect: (name: string | null) => void;
}

export function PredicateList({ predicates, selected, onSelect }: Properties) {
  const [filter, setFilter] = useAddress("find");
  const matching = useMemo(() => {
    const text = (filter ?? "").toLowerCase();
    return predicates.filter(({ predicate, arity }) => `${predicate}/${arity}`.toLowerCase().includes(text));
  }, [predicates, filter]);
  return (
    <nav className="predicates card" aria-label="Predicates">
      <label>
        Find a predicate
        <input type="search" value={filter ?? ""} spellCheck={false} autoComplete="off" onChange={(event) => setFilter(event.target.value)} />
      </label>
      <ul>
        {matching.slice(0, MAX_SHOWN).map(({ predicate, arity, factCount, ruleCount }) => {
          const name = `${predicate}/${arity}`;
          return (
            <li key={name}>
              <button type="button" aria-current={name === selected ? "true" : undefined} onClick={() => onSelect(name === selected ? null : name)}>
                <code>{name}</code>
                <span className="soft">{countsText(factCount, ruleCount)}</span>
              </button>
            </li>
          );
        })}
      </ul>
      {matching.length === 0 && <p className="soft">No predicate has this name.</p>}
      {matching.length > MAX_SHOWN && <p className="soft">{(matching.length - MAX_SHOWN).toLocaleString("en")} more: narrow the search.</p>}
    </nav>
  );
}

function countsText(facts: number, rules: number): string {
  const parts = [];
  if (facts > 0 || rules === 0) parts.push(`${facts.toLocaleString("en")} ${facts === 1 ? "fact" : "facts"}`);
  if (rules > 0) parts.push(`${rules.toLocaleString("en")} ${rules === 1 ? "rule" : "rules"}`);
  return parts.join(", ");
}
