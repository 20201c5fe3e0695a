// The facts around a constant, as a drawing and as a list. Only what is shown is loaded.
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";

import { useAddress } from "../address";
import { dataOf } from "../api/client";
import { ErrorMessage } from "../components/ErrorMessage";
import { useConnection } from "../connection";
import { atomText } from "../language/goal";
import { distinct, drawingOf, type Fact } from "../neighbourhood";
import { NotEmptyHint } from "./NotEmptyHint";
import "./graph.css";

const GraphDrawing = lazy(() => import("../components/GraphDrawing"));

/** Facts that are loaded around a constant; the server takes its predicates in turn. */
const PAGE_SIZE = 20;
/** Constants that two hops expand by themselves. */
const MAX_EXPANDED = 10;
const MAX_SHOWN = 200;
const COLORS = 6;

export default function Graph() {
  const [constant, setConstant] = useAddress("constant");
  const [hops, setHops] = useAddress("hops");
  const [draft, setDraft] = useState(constant ?? "");
  useEffect(() => setDraft(constant ?? ""), [constant]);
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
        <label className="inline">Constant <input value={draft} onChange={(event) => setDraft(event.target.value)} spellCheck={false} autoComplete="off" autoFocus /></label>
        <button type="submit" className="primary" disabled={draft.trim() === "" || isVariable}>Show</button>
        <span className="choice" role="group" aria-label="Distance">
          <button type="button" aria-pressed={hops !== "2"} onClick={() => setHops(null)}>One hop</button>
          <button type="button" aria-pressed={hops === "2"} onClick={() => setHops("2")}>Two hops</button>
        </span>
        {isVariable && <span className="warning">A constant does not begin with “?”.</span>}
      </form>
      {constant === null ? <><p className="soft">Type a constant to see the stored facts around it.</p><NotEmptyHint /></> : <Around key={constant} center={constant} isWide={hops === "2"} />}
    </>
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
  const { facts, drawing, hasMore } = useMemo(() => {
    const all = distinct(results.flatMap(({ data }) => (data?.facts ?? []) as Fact[]));
    const shown = all.slice(0, MAX_SHOWN);
    return { facts: shown, drawing: drawingOf(shown, center), hasMore: all.length > MAX_SHOWN || results.some(({ data }) => data !== undefined && data.facts.length < data.totalFacts) };
    // The results are new objects at each rendering; their times say when they change.
  }, [stamp, expanded, center]);
  const around = first.data;
  const counts = new Map<string, number>();
  for (const { predicate, factCount } of around?.predicates ?? []) counts.set(predicate, (counts.get(predicate) ?? 0) + factCount);
  const canGrow = around !== undefined && around.facts.length < around.totalFacts && pages * PAGE_SIZE < MAX_SHOWN;
  const names = useMemo(() => [...new Set(facts.map(({ predicate }) => predicate))].sort(), [facts]);
  const colorOf = useMemo(() => (predicate: string) => `--graph-${Math.max(0, names.indexOf(predicate)) % COLORS}`, [names]);
  const toggle = (name: string) => {
    if (name === center) return;
    const next = new Set(toggled);
    if (!next.delete(name)) next.add(name);
    setToggles([...next].join("\n"));
  };
  if (error !== null) return <ErrorMessage error={error} />;
  if (results.some(({ isPending }) => isPending)) return <p role="status">Loading …</p>;
  return (
    <>
      <p className="toolbar">
        <span role="status"><strong>{facts.length}</strong> {facts.length === 1 ? "fact" : "facts"}, {drawing.nodes.filter((node) => node.constant !== null).length} constants</span>
        {hasMore && <span className="warning">More facts exist than are shown.</span>}
        {around !== undefined && around.facts.length < around.totalFacts && <span className="soft">{around.facts.length} of {around.totalFacts.toLocaleString("en")} around {center}</span>}
        {canGrow && <button type="button" onClick={() => setPages(String(pages + 1))}>Show more</button>}
      </p>
      <ul className="legend" aria-label="Colours of predicates">
        {names.map((name) => <li key={name}><span className="swatch" style={{ background: `var(${colorOf(name)})` }} />{name}{hasMore && counts.has(name) && <span className="soft"> {counts.get(name)?.toLocaleString("en")}</span>}</li>)}
      </ul>
      <div className="around">
        <Suspense fallback={<p role="status">Loading …</p>}>
          <GraphDrawing nodes={drawing.nodes} edges={drawing.edges} expanded={expanded} colorOf={colorOf} onToggle={toggle} />
        </Suspense>
        <div className="lists">
          <h2>Constants</h2>
          <ul aria-label="Constants">
            {drawing.nodes.map(({ constant }) => constant !== null && (
              <li key={constant}><button type="button" disabled={constant === center} aria-expanded={expanded.has(constant)} onClick={() => toggle(constant)}>{constant}</button></li>
            ))}
          </ul>
          <h2>Facts</h2>
          <ul aria-label="Facts">{facts.map((fact) => <li key={`${atomText(fact)}@${fact.scope ?? ""}`}><code>{atomText(fact)}</code></li>)}</ul>
        </div>
      </div>
    </>
  );
}
