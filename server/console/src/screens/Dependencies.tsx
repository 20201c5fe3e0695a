// Which predicates the rules derive from which, drawn from conclusions down to stored facts, with their strata.
import dagre from "@dagrejs/dagre";
import { useMemo } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../address";
import { ErrorMessage } from "../components/ErrorMessage";
import { around, dependenciesOf, type Dependencies as All, type RuleLike } from "../dependencies";
import { useRules } from "./facts/requests";

/** Predicates that are drawn at once; more need a choice. */
const MAX_DRAWN = 60;
const CHARACTER_WIDTH_PX = 7.3;

export default function Dependencies() {
  const query = useRules();
  const [name, setName] = useAddress("predicate");
  const all = useMemo(() => dependenciesOf((query.data?.rules ?? []) as unknown as RuleLike[]), [query.data]);
  if (query.error !== null) return <ErrorMessage error={query.error} />;
  if (query.data === undefined) return <p role="status">Loading …</p>;
  if (all.predicates.length === 0) return <p className="soft">No rules yet: nothing depends on anything.</p>;
  const isKnown = name !== null && all.predicates.includes(name);
  const shown = isKnown ? around(all, name) : all;
  return (
    <>
      <div className="fields versions">
        <label>
          Predicate
          <select value={isKnown ? name : ""} onChange={(event) => setName(event.target.value, { replace: false })}>
            <option value="">All {all.predicates.length}</option>
            {all.predicates.map((each) => <option key={each}>{each}</option>)}
          </select>
        </label>
      </div>
      {shown.predicates.length > MAX_DRAWN ? <p className="soft">{shown.predicates.length} predicates are too many for a drawing: choose one above.</p> : <Drawing dependencies={shown} selected={isKnown ? name : null} onSelect={(each) => setName(each, { replace: false })} />}
      <StrataTable dependencies={shown} />
    </>
  );
}

/** The strata as a table, the first to be evaluated first. */
function StrataTable({ dependencies: { predicates, strata, recursive, unstratified } }: { dependencies: All }) {
  const [search] = useSearchParams();
  const numbers = [...new Set(predicates.map((name) => strata.get(name) ?? 1))].sort((left, right) => left - right);
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Strata">
      <table>
        <thead><tr><th scope="col" className="stratum">Stratum</th><th scope="col">Predicates</th></tr></thead>
        <tbody>
          {numbers.map((number) => (
            <tr key={number}>
              <th scope="row">{number}{number === 1 && <span className="soft"> stored facts</span>}</th>
              <td>
                <ul className="strata">
                  {predicates.filter((name) => strata.get(name) === number).map((name) => (
                    <li key={name}>
                      <Link href={linkTo("facts", search, { predicate: name.replace(/^~/, ""), ...(number === 1 ? {} : { view: "rules" }) })}><code>{name}</code></Link>
                      {unstratified.has(name) ? <span className="kind mark-warn">recursive through not</span> : recursive.has(name) && <span className="kind">recursive</span>}
                    </li>
                  ))}
                </ul>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Drawing({ dependencies, selected, onSelect }: { dependencies: All; selected: string | null; onSelect: (name: string) => void }) {
  const { nodes, edges, width, height } = useMemo(() => layout(dependencies), [dependencies]);
  return (
    <div className="drawing dependencies">
      <p className="soft legend-line"><span className="line" /> needs <span className="line strict" /> needs all of it first (<code>not</code>, or an aggregate). The number is the stratum.</p>
      <div className="canvas" tabIndex={0} role="group" aria-label="Drawing of the dependencies">
        <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0,0L8,4L0,8z" /></marker>
          </defs>
          {edges.map(({ from, to, isStrict, points }) => (
            <path key={`${from}>${to}`} className={isStrict ? "edge strict" : "edge"} markerEnd="url(#arrow)" d={`M${points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L")}`} />
          ))}
          {nodes.map(({ name, x, y, width: wide, height: high }) => {
            const stratum = dependencies.strata.get(name) ?? 1;
            const choose = () => onSelect(name);
            return (
              <g
                key={name}
                className={`node ${stratum === 1 ? "asserted" : "derived"}${name === selected ? " selected" : ""}`}
                transform={`translate(${x - wide / 2},${y - high / 2})`}
                role="button"
                tabIndex={0}
                onClick={choose}
                onKeyDown={(event) => {
                  if (event.key !== "Enter" && event.key !== " ") return;
                  event.preventDefault();
                  choose();
                }}
              >
                <rect width={wide} height={high} rx="6" />
                <text x="10" y={high / 2} dominantBaseline="central">{name} <tspan className="number" x={wide - 10} textAnchor="end">{stratum}</tspan></text>
              </g>
            );
          })}
        </svg>
      </div>
    </div>
  );
}

function layout({ predicates, edges }: All) {
  const drawing = new dagre.graphlib.Graph();
  drawing.setGraph({ rankdir: "TB", nodesep: 16, ranksep: 40, marginx: 12, marginy: 12 });
  drawing.setDefaultEdgeLabel(() => ({}));
  for (const name of predicates) drawing.setNode(name, { width: (name.length + 3) * CHARACTER_WIDTH_PX + 20, height: 30 });
  for (const { from, to } of edges) if (from !== to) drawing.setEdge(from, to);
  dagre.layout(drawing);
  const nodes = predicates.map((name) => ({ name, ...(drawing.node(name) as { x: number; y: number; width: number; height: number }) }));
  const lines = edges.filter(({ from, to }) => from !== to).map((edge) => ({ ...edge, points: drawing.edge(edge.from, edge.to).points as { x: number; y: number }[] }));
  const { width = 0, height = 0 } = drawing.graph();
  return { nodes, edges: lines, width, height };
}
