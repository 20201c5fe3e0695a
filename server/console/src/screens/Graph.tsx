// The facts around a constant, as a drawing and as a list. Only what is shown is loaded.
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../address";
import { dataOf } from "../api/client";
import { useConstants } from "../api/queries";
import { ErrorMessage } from "../components/ErrorMessage";
import { GraphDrawing } from "../components/GraphDrawing";
import { useConnection } from "../connection";
import { atomText } from "../language/atom";
import { distinct, drawingOf, type Fact } from "../neighbourhood";
import { NotEmptyHint } from "./NotEmptyHint";
import "./graph.css";

/** Facts that are loaded around a constant; the server takes its predicates in turn. */
const PAGE_SIZE = 20;
/** Constants that two hops expand by themselves. */
const MAX_EXPANDED = 10;
const MAX_SHOWN = 200;
const COLORS = 6;
const MAX_SUGGESTED = 100;
/** Width by height of the place for the drawing. */
const ASPECT = { wide: 1.5, narrow: 0.5 };

export default function Graph() {
  const [constant, setConstant] = useAddress("constant");
  const [hops, setHops] = useAddress("hops");
  const [draft, setDraft] = useState(constant ?? "");
  useEffect(() => setDraft(constant ?? ""), [constant]);
  const constants = useConstants();
  const isVariable = draft.trim().startsWith("?");
  return (
    <>
      <h1>Graph</h1>
      <form
        className="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isVariable) setConstant(draft.trim(), { replace: false });
        }}
      >
        <label className="inline">Constant <input value={draft} list="graph-constants" onChange={(event) => setDraft(event.target.value)} spellCheck={false} autoComplete="off" autoFocus /></label>
        <datalist id="graph-constants">{constants.slice(0, MAX_SUGGESTED).map((name) => <option key={name} value={name} />)}</datalist>
        <button type="submit" className="primary" disabled={draft.trim() === "" || isVariable}>Show</button>
        <span className="choice" role="group" aria-label="Distance">
          <button type="button" aria-pressed={hops !== "2"} onClick={() => setHops(null)}>One hop</button>
          <button type="button" aria-pressed={hops === "2"} onClick={() => setHops("2")}>Two hops</button>
        </span>
        {isVariable && <span className="warning">A constant does not begin with “?”.</span>}
      </form>
      {constant === null ? <Beginning constants={constants} onPick={(name) => setConstant(name, { replace: false })} /> : <Around key={constant} center={constant} isWide={hops === "2"} />}
    </>
  );
}

/** What the screen says before a constant is chosen: those that most facts are about. */
function Beginning({ constants, onPick }: { constants: readonly string[]; onPick: (constant: string) => void }) {
  if (constants.length === 0) return <NotEmptyHint />;
  return (
    <section className="card teach">
      <h2>Start from a constant</h2>
      <p>The drawing shows the stored facts around it. These have the most facts:</p>
      <p>{constants.slice(0, 24).map((name) => <button key={name} type="button" className="chip" onClick={() => onPick(name)}>{name}</button>)}</p>
    </section>
  );
}

function Around({ center, isWide }: { center: string; isWide: boolean }) {
  const { connection, client } = useConnection();
  const [toggles, setToggles] = useAddress("toggle");
  const [pageText, setPages] = useAddress("pages");
  const pages = Math.min(MAX_SHOWN / PAGE_SIZE, Math.max(1, Number.parseInt(pageText ?? "1", 10) || 1));
  const toggled = useMemo(() => new Set(toggles === null ? [] : toggles.split("\n")), [toggles]);
  const query = (constant: string) => {
    const limit = constant === center ? PAGE_SIZE * pages : PAGE_SIZE;
    return {
      queryKey: ["neighbours", connection, constant, limit],
      placeholderData: keepPreviousData,
      queryFn: ({ signal }: { signal: AbortSignal }) =>
        dataOf(client.POST("/neighbours", { body: { constant, limit, scope: connection.scope } as never, params: {} as never, signal })),
    };
  };
  const first = useQueries({ queries: [query(center)] })[0];
  const automatic = useMemo(
    () => (isWide ? [...new Set((first.data?.facts ?? []).flatMap(({ args }) => args))].filter((name) => name !== center).slice(0, MAX_EXPANDED) : []),
    [isWide, first.data, center],
  );
  // The address has what differs from the automatic choice.
  const expanded = useMemo(() => {
    const names = new Set([center, ...automatic]);
    for (const name of toggled) if (!names.delete(name)) names.add(name);
    return names;
  }, [center, automatic, toggled]);
  const results = useQueries({ queries: [...expanded].map(query) });
  const error = results.find((result) => result.error !== null)?.error ?? null;
  const stamp = results.map(({ dataUpdatedAt }) => dataUpdatedAt).join();
  const [hiddenText, setHidden] = useAddress("hide");
  const hidden = useMemo(() => new Set(hiddenText === null ? [] : hiddenText.split("\n")), [hiddenText]);
  const [search] = useSearchParams();
  const { facts, names, drawing, hasMore } = useMemo(() => {
    const all = distinct(results.flatMap(({ data }) => (data?.facts ?? []) as Fact[]));
    const shown = all.slice(0, MAX_SHOWN);
    const visible = shown.filter(({ predicate }) => !hidden.has(predicate));
    const names = [...new Set(shown.map(({ predicate }) => predicate))].sort();
    const aspect = matchMedia("(max-width: 50rem)").matches ? ASPECT.narrow : ASPECT.wide;
    return { facts: visible, names, drawing: drawingOf(visible, center, aspect), hasMore: all.length > MAX_SHOWN || results.some(({ data }) => data !== undefined && data.facts.length < data.totalFacts) };
    // The results are new objects at each rendering; their times say when they change.
  }, [stamp, expanded, center, hidden]);
  const around = first.data;
  const counts = new Map<string, number>();
  for (const { predicate, factCount } of around?.predicates ?? []) counts.set(predicate, (counts.get(predicate) ?? 0) + factCount);
  const canGrow = around !== undefined && around.facts.length < around.totalFacts && pages * PAGE_SIZE < MAX_SHOWN;
  const colorOf = useMemo(() => (predicate: string) => `--graph-${Math.max(0, names.indexOf(predicate)) % COLORS}`, [names]);
  const toggle = (name: string) => {
    if (name === center) return;
    const next = new Set(toggled);
    if (!next.delete(name)) next.add(name);
    setToggles([...next].join("\n"));
  };
  const show = (name: string) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden([...next].join("\n"));
  };
  if (error !== null) return <ErrorMessage error={error} />;
  if (results.some(({ isPending }) => isPending)) return <p role="status">Loading …</p>;
  if (around?.totalFacts === 0) return <p role="status">No fact has the constant <code>{center}</code>.</p>;
  const shownConstants = drawing.boxes.filter((box) => box.constant !== null).length;
  return (
    <>
      <p className="toolbar">
        <span role="status"><strong>{facts.length}</strong> {facts.length === 1 ? "fact" : "facts"}, {shownConstants} {shownConstants === 1 ? "constant" : "constants"}</span>
        {hasMore && <span className="warning">More facts exist than are shown.</span>}
        {around !== undefined && around.facts.length < around.totalFacts && <span className="soft">{around.facts.length} of {around.totalFacts.toLocaleString("en")} around {center}</span>}
        {canGrow && <button type="button" onClick={() => setPages(String(pages + 1))}>Show more</button>}
      </p>
      <ul className="legend" aria-label="Predicates that are shown">
        {names.map((name) => <li key={name}><button type="button" aria-pressed={!hidden.has(name)} title={hidden.has(name) ? "Show" : "Hide"} onClick={() => show(name)}><span className="swatch" style={{ background: `var(${colorOf(name)})` }} />{name}</button>{hasMore && counts.has(name) && <span className="soft"> {counts.get(name)?.toLocaleString("en")}</span>}</li>)}
      </ul>
      <div className="around">
        <GraphDrawing drawing={drawing} center={center} expanded={expanded} colorOf={colorOf} onToggle={toggle} />
        <div className="lists">
          <h2>Constants</h2>
          <ul aria-label="Constants">
            {drawing.boxes.map(({ constant }) => constant !== null && (
              <li key={constant}><button type="button" disabled={constant === center} aria-expanded={expanded.has(constant)} onClick={() => toggle(constant)}>{constant}</button>{constant !== center && <Link href={linkTo("graph", search, { constant })} aria-label={`Centre ${constant}`} title="Put in the centre">◎</Link>}</li>
            ))}
          </ul>
          <h2>Facts</h2>
          <ul aria-label="Facts">{facts.map((fact) => <li key={`${atomText(fact)}@${fact.scope ?? ""}`}><code>{atomText(fact)}</code></li>)}</ul>
        </div>
      </div>
    </>
  );
}
