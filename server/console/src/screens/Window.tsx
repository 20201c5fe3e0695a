// Compose a context window: its text, its budget, why each entry is in it, and what was left out.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState, type FormEvent } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../address";
import { dataOf, type Schemas } from "../api/client";
import { useCheck, usePredicateQuery } from "../api/queries";
import { budgetOf } from "../budget";
import { CopyButton } from "../components/CopyButton";
import { Editor } from "../components/Editor";
import { ErrorMessage } from "../components/ErrorMessage";
import { SubNavigation } from "../components/SubNavigation";
import { Tabs } from "../components/Tabs";
import { VirtualTable } from "../components/VirtualTable";
import { useConnection } from "../connection";
import { atomText } from "../language/atom";
import { reasonsOf } from "../reasons";
import { instantText } from "../time";
import "./Window.css";

type Entry = Schemas["Entry"];
type WindowData = Schemas["AnyWindow"];
type Diff = Schemas["WindowDiff"];

/** What was left out of a window: the member `cut` of its answer. */
interface Cut {
  reasons: Record<string, number>;
  examples: { fact: string; reason: string }[];
  notIncluded: number;
  goals: {
    goal: string;
    answers: number;
    whole: number;
    cut: Record<string, number>;
    partial: { goal: string; rule: string; have: string[]; missing: string[] }[];
  }[];
}

/** The fields of the form, as they are in the address. */
interface Fields {
  goals: string;
  query: string;
  maxFacts: string;
  maxTokens: string;
  format: string;
  session: string;
  sources: string;
}

const DEFAULTS: Fields = { goals: "", query: "", maxFacts: "100", maxTokens: "", format: "natural", session: "", sources: "numbered" };
const NAMES = Object.keys(DEFAULTS) as (keyof Fields)[];
const FORMATS = ["natural", "facts", "structured"];

/** A field that `/context/diff` does not name has the value of the session's last window: this one stands for no limit. */
const NO_TOKEN_LIMIT = 1_000_000_000;

const CHANGES_KEY = "kbcore.changes";
const MAX_STORED_CHARS = 1_000_000;

const CATEGORIES: Record<string, string> = {
  goal_relevant: "for a goal",
  inferred: "conclusion",
  consolidated: "summary",
  ephemeral: "short-lived",
  recent: "recent",
  asserted: "stored",
  overflow: "outside the buckets",
};

const CUT_REASONS: Record<string, string> = {
  maxFacts: "the limit of facts",
  maxTokens: "the limit of tokens",
  maxFactsPerPredicate: "the limit of facts of one predicate",
  contradicted: "a contradiction that the fact loses",
};

const REMOVAL_REASONS: Record<string, string> = {
  retracted: "no longer true: retracted",
  expired: "no longer true: expired",
  contradicted: "no longer true: the opposite is known",
  superseded: "still true: replaced by a summary or a new version",
  not_selected: "still true: not selected any more",
};

export default function Window() {
  const [search, setSearch] = useSearchParams();
  const { connection, client } = useConnection();
  const predicates = usePredicateQuery();
  const fields = useMemo(() => fieldsOf(search), [search]);
  const [run, setRun] = useState(0);
  const { scope } = connection;
  const isEmpty = predicates.data !== undefined && predicates.data.predicates.length === 0;
  const composed = useQuery({
    queryKey: ["window", connection, fields, run],
    enabled: predicates.data !== undefined && !isEmpty,
    // A request with a session changes the session: it is sent once for each composition.
    staleTime: Infinity,
    retry: false,
    queryFn: async ({ signal }): Promise<{ window: WindowData; diff: Diff | null }> => {
      const request = requestOf(fields, scope);
      const post = { params: {} as never, signal };
      const { session } = fields;
      const diff =
        session === ""
          ? null
          : await dataOf(client.POST("/context/diff", { ...post, body: { ...request, sessionId: session, maxTokens: request.maxTokens ?? NO_TOKEN_LIMIT } as never }));
      const body = { ...request, compat: false, ...(session === "" ? {} : { sessionId: session }) };
      const window = (await dataOf(client.POST("/memory/context", { ...post, body: body as never }))) as WindowData;
      return { window, diff: diff === null ? null : lastChanges(JSON.stringify([connection.tenant, connection.database, scope, fields]), diff, run === 0) };
    },
  });
  const compose = (draft: Fields) => {
    setSearch((previous) => {
      const next = new URLSearchParams(previous);
      next.delete("why");
      for (const name of NAMES) {
        const value = draft[name].trim();
        if (value === "" || value === DEFAULTS[name]) next.delete(name);
        else next.set(name, value);
      }
      return next;
    });
    setRun(run + 1);
  };
  return (
    <>
      <h1>Window composer</h1>
      <SubNavigation />
      <Form fields={fields} onCompose={compose} isFetching={composed.isFetching} />
      {isEmpty && (
        <p className="soft">
          This tenant has no facts yet. <Link href={linkTo("start", search)}>Load an example</Link> to compose a window of it.
        </p>
      )}
      {predicates.error !== null && <ErrorMessage error={predicates.error} />}
      {composed.error !== null && <ErrorMessage error={composed.error} />}
      {composed.data !== undefined && composed.error === null && (
        <>
          <Prompt window={composed.data.window} format={fields.format} maxTokens={fields.maxTokens === "" ? null : Number(fields.maxTokens)} />
          <Parts window={composed.data.window} diff={composed.data.diff} session={fields.session} query={fields.query} />
        </>
      )}
    </>
  );
}

/**
 * Return the changes to show for a session and remember them. The session counts a window that is composed again by a reload of the page:
 * without newer changes, the remembered ones are shown again.
 */
function lastChanges(key: string, diff: Diff, isReload: boolean): Diff {
  const isEmpty = diff.previousWindowId !== null && diff.added.length + diff.removed.length === 0;
  const [storedKey, remembered] = JSON.parse(sessionStorage.getItem(CHANGES_KEY) ?? "[]") as [string?, Diff?];
  if (isReload && isEmpty && storedKey === key && remembered !== undefined) return remembered;
  const stored = JSON.stringify([key, diff]);
  if (stored.length <= MAX_STORED_CHARS) sessionStorage.setItem(CHANGES_KEY, stored);
  else sessionStorage.removeItem(CHANGES_KEY);
  return diff;
}

function Form({ fields, onCompose, isFetching }: { fields: Fields; onCompose: (fields: Fields) => void; isFetching: boolean }) {
  const [draft, setDraft] = useState(fields);
  // The editor of the goals is loaded where there are goals.
  const [hasGoals, setHasGoals] = useState(fields.goals !== "");
  useEffect(() => setDraft(fields), [fields]);
  const predicates = usePredicateQuery().data?.predicates ?? [];
  const check = useCheck("goal");
  const set = (part: Partial<Fields>) => setDraft((previous) => ({ ...previous, ...part }));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onCompose(draft);
  };
  // A row for each goal, and an empty one for the next.
  const goals = draft.goals.split("\n");
  if (goals.at(-1) !== "") goals.push("");
  const setGoal = (index: number, text: string) =>
    setDraft((previous) => {
      const lines = previous.goals.split("\n");
      lines[index] = text;
      return { ...previous, goals: lines.join("\n") };
    });
  return (
    <form className="card composer" onSubmit={submit} aria-label="Request">
      <label className="wide">
        Question: finds the facts that match its words
        <input value={draft.query} onChange={(event) => set({ query: event.target.value })} placeholder="Where does Mia live?" autoComplete="off" />
      </label>
      {hasGoals || draft.goals !== "" ? (
        <fieldset className="goals">
          <legend>Goals</legend>
          {goals.map((goal, index) => (
            <Editor key={index} label={`Goal ${index + 1}`} value={goal} onChange={(text) => setGoal(index, text)} onRun={() => onCompose(draft)} check={check} predicates={predicates} placeholder={index === 0 ? "ancestor(ann, ?who)" : "another goal"} />
          ))}
        </fieldset>
      ) : (
        <p className="wide"><button type="button" onClick={() => setHasGoals(true)}>Add goals</button> <span className="soft">A goal brings its answers, and the facts that they depend on.</span></p>
      )}
      <label>
        Facts at most
        <input type="number" min={1} max={10_000} required value={draft.maxFacts} onChange={(event) => set({ maxFacts: event.target.value })} />
      </label>
      <label>
        Tokens at most
        <input type="number" min={1} placeholder="no limit" value={draft.maxTokens} onChange={(event) => set({ maxTokens: event.target.value })} />
      </label>
      <label>
        Format
        <select value={draft.format} onChange={(event) => set({ format: event.target.value })}>
          {FORMATS.map((format) => <option key={format}>{format}</option>)}
        </select>
      </label>
      <label>
        Sources
        <select value={draft.sources} onChange={(event) => set({ sources: event.target.value })}>
          <option>numbered</option>
          <option>none</option>
        </select>
      </label>
      <label>
        Session
        <input value={draft.session} onChange={(event) => set({ session: event.target.value })} placeholder="none" autoComplete="off" spellCheck={false} />
      </label>
      <p className="toolbar">
        <button type="submit" className="primary">Compose</button>
        {isFetching && <span role="status">Composing …</span>}
      </p>
    </form>
  );
}

function Prompt({ window, format, maxTokens }: { window: WindowData; format: string; maxTokens: number | null }) {
  const text = format === "structured" ? JSON.stringify(window.entries.map(({ why, ...entry }) => entry), null, 1) : (window.formattedText ?? "");
  return (
    <div className="composed">
      <section aria-labelledby="prompt-heading">
        <h2 id="prompt-heading">Text for the prompt</h2>
        <p className="toolbar">
          <span role="status">
            <strong>{window.entries.length}</strong> {window.entries.length === 1 ? "entry" : "entries"}, about <strong>{window.tokenEstimate}</strong> tokens
          </span>
          <CopyButton text={text} />
        </p>
        {format === "structured" && <p className="soft">The entries as a program receives them; the tokens are those of the format “facts”.</p>}
        {text === "" ? <p className="soft">The window is empty: no fact matches the goals and the query.</p> : <pre className="prompt" tabIndex={0} aria-label="Text for the prompt">{text}</pre>}
      </section>
      <Budget window={window} maxTokens={maxTokens} />
    </div>
  );
}

function Budget({ window, maxTokens }: { window: WindowData; maxTokens: number | null }) {
  const parts = budgetOf(window, maxTokens);
  return (
    <section aria-labelledby="budget-heading">
      <h2 id="budget-heading">Budget</h2>
      <p>
        {maxTokens === null ? `About ${window.tokenEstimate} tokens, without a limit.` : `About ${window.tokenEstimate} of ${maxTokens} tokens.`}
      </p>
      <ul className="budget">
        {parts.map(({ category, facts, characters, tokens, share }) => (
          <li key={category ?? ""}>
            <span className="name">{category === null ? "rules, headings, notes" : categoryName(category)}</span>
            <span className="bar" aria-hidden="true"><span style={{ width: `${share * 100}%` }} /></span>
            <span className="soft">
              {tokens} tokens, {characters} characters{category !== null && `, ${facts} ${facts === 1 ? "fact" : "facts"}`} ({Math.round(share * 100)} %)
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Parts({ window, diff, session, query }: { window: WindowData; diff: Diff | null; session: string; query: string }) {
  const [tab, setTab] = useAddress("tab");
  const cut = window["cut"] as unknown as Cut | undefined;
  const tabs = [
    { id: "entries", title: `Entries (${window.entries.length})`, content: () => <Entries window={window} query={query} /> },
    { id: "cut", title: "Left out", content: () => (cut === undefined ? null : <LeftOut cut={cut} />) },
    { id: "changes", title: "Changes", content: () => <Changes window={window} diff={diff} session={session} /> },
  ];
  return <Tabs label="Parts of the window" tabs={tabs} selected={tab ?? "entries"} onSelect={setTab} />;
}

function Entries({ window, query }: { window: WindowData; query: string }) {
  const { entries, sources = [] } = window;
  const [why, setWhy] = useAddress("why");
  if (entries.length === 0) return <p className="soft">The window has no entries.</p>;
  const index = entries.findIndex((entry) => keyOf(entry) === why);
  const entry = entries[index];
  const select = (row: number) => {
    const target = entries[row];
    if (target !== undefined) setWhy(keyOf(target));
  };
  return (
    <div className="entries">
      <VirtualTable
        label="Entries"
        columns={["fact", "why it is here"]}
        widths="minmax(9rem, 2fr) minmax(9rem, 3fr)"
        lines={matchMedia("(max-width: 40rem)").matches ? 4 : 2}
        rows={entries}
        cells={(row) => [atomText(atomOf(row)), <span className="reasons">{reasonsOf(row, query, sources).join("; ")}</span>]}
        selected={index < 0 ? null : index}
        onSelect={select}
      />
      {entry === undefined ? <p className="soft">Select an entry to see why it is in the window.</p> : <Why entry={entry} query={query} sources={sources} />}
    </div>
  );
}

function Why({ entry, query, sources }: { entry: Entry; query: string; sources: readonly Schemas["Source"][] }) {
  const [search] = useSearchParams();
  const text = atomText(atomOf(entry));
  const cited = sources.filter(({ number }) => (entry.citations ?? []).includes(number));
  const why = (entry.why ?? {}) as Record<string, number | string | null | undefined>;
  const rows: [string, string | null][] = [
    ["Category", categoryName(entry.category)],
    ["Match with the query", percent(why["relevance"])],
    ["Salience", decimal(entry.salience)],
    ["– by last access", decimal(why["recency"])],
    ["– by number of accesses", decimal(why["frequency"])],
    ["– by priority", decimal(why["priority"])],
    ["Confidence", decimal(why["confidence"])],
    ["Asserted", new Date(entry.createdAt).toISOString().replace("T", " ").slice(0, 19) + " UTC"],
    ["Scope", entry.scope ?? null],
  ];
  return (
    <section className="card why" aria-labelledby="why-heading">
      <h2 id="why-heading">Why is <code>{text}</code> here?</h2>
      <ul>{reasonsOf(entry, query, sources).map((reason) => <li key={reason}>{reason}</li>)}</ul>
      {cited.map(({ number, speaker, at, text: words }) => <blockquote key={number}>“{words}” <span className="soft">{speaker}, {instantText(at)}</span></blockquote>)}
      <details>
        <summary>Scores</summary>
        <dl>
          {rows.map(([name, value]) => value !== null && <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
        </dl>
      </details>
      {entry.provenance != null && (
        <>
          <p>Derived by <code>{entry.provenance.rule}</code> from:</p>
          <ul>{entry.provenance.premises.map((premise) => <li key={premise}><code>{premise}</code></li>)}</ul>
        </>
      )}
      <p className="toolbar">
        <Link href={linkTo("playground", search, { goal: text })}>{entry.provenance == null ? "Open in the playground" : "Open its proof"}</Link>
        {entry.provenance == null && <Link href={linkTo("memory", search, { part: "timeline", about: text.replace(/^~/, "") })}>Timeline</Link>}
      </p>
    </section>
  );
}

function LeftOut({ cut }: { cut: Cut }) {
  const [search] = useSearchParams();
  const reasons = Object.entries(cut.reasons);
  const isLimited = reasons.length > 0 || cut.goals.some((goal) => Object.keys(goal.cut).length > 0);
  return (
    <>
      <p>
        {cut.notIncluded === 0 ? "Every stored fact is in the window." : `${facts(cut.notIncluded)} of the scope ${cut.notIncluded === 1 ? "is" : "are"} not in the window.`}{" "}
        {!isLimited && cut.notIncluded > 0 && "No limit kept a fact out: no goal depends on these, and they do not match the query."}
      </p>
      {reasons.length > 0 && (
        <>
          <h2>Facts that a limit kept out</h2>
          <ul>{reasons.map(([reason, count]) => <li key={reason}>{facts(count)}: {CUT_REASONS[reason] ?? reason}</li>)}</ul>
        </>
      )}
      {cut.examples.length > 0 && (
        <div className="scroll" tabIndex={0} role="region" aria-label="Examples of facts left out">
          <table>
            <thead><tr><th>Fact</th><th>Left out for</th></tr></thead>
            <tbody>
              {cut.examples.map(({ fact, reason }) => <tr key={fact}><td><code>{fact}</code></td><td>{CUT_REASONS[reason] ?? reason}</td></tr>)}
            </tbody>
          </table>
        </div>
      )}
      {cut.goals.map(({ goal, answers, whole, cut: lost, partial }) => (
        <section key={goal} className="card goal" aria-label={`Goal ${goal}`}>
          <p>
            <Link href={linkTo("playground", search, { goal })}><code>{goal}</code></Link>:{" "}
            {answers === 0 ? "no answers" : `${answers} ${answers === 1 ? "answer" : "answers"} considered, ${whole} in the window with all facts of the proof`}
          </p>
          {Object.entries(lost).map(([reason, count]) => <p key={reason}>{count} not with all facts: {CUT_REASONS[reason] ?? reason}</p>)}
          {partial.map(({ rule, have, missing }, index) => (
            <div key={index}>
              <p>Nearest rule: <code>{rule}</code></p>
              <ul>
                {have.map((fact) => <li key={fact}>known: <code>{fact}</code></li>)}
                {missing.map((condition) => <li key={condition} className="warning">missing: <code>{condition}</code></li>)}
              </ul>
            </div>
          ))}
        </section>
      ))}
    </>
  );
}

function Changes({ window, diff, session }: { window: WindowData; diff: Diff | null; session: string }) {
  const { client } = useConnection();
  const clear = useMutation({
    mutationFn: () => dataOf(client.POST("/context/session/clear", { body: { sessionId: session } as never, params: {} as never, parseAs: "text" })),
  });
  if (diff === null) return <p className="soft">Name a session to compare each window with the last one of the session.</p>;
  return (
    <>
      <p className="toolbar">
        <button type="button" onClick={() => clear.mutate()} disabled={clear.isPending}>End session</button>
        <span role="status" className="soft">{clear.isSuccess && "The session has ended: the next window is its first."}</span>
      </p>
      {clear.error !== null && <ErrorMessage error={clear.error} />}
      <Difference window={window} diff={diff} session={session} />
    </>
  );
}

function Difference({ window, diff, session }: { window: WindowData; diff: Diff; session: string }) {
  if (diff.previousWindowId == null) return <p>This is the first window of session <code>{session}</code>. The next one is compared with it.</p>;
  if (diff.currentWindowId !== window.windowId) return <p className="warning">The last window of session <code>{session}</code> was of another scope: the two are not compared.</p>;
  return (
    <>
      <p role="status">
        Since the last window of session <code>{session}</code>: {diff.added.length} added, {diff.removed.length} removed, {diff.unchanged} unchanged.
        {diff.fullRefreshRecommended && ` More than half has changed: send the whole window (${diff.reason ?? ""}).`}
      </p>
      {diff.added.length + diff.removed.length > 0 && (
        <ul className="changes" aria-label="Changed entries">
          {diff.added.map((entry) => (
            <li key={`+${entry.key}`} className="added"><span>added</span> <code>{atomText(atomOf(entry))}</code></li>
          ))}
          {diff.removed.map((entry) => (
            <li key={`-${entry.key}`} className="removed">
              <span>removed</span> <code>{atomText(atomOf(entry))}</code> <em className="soft">{REMOVAL_REASONS[entry.reason] ?? entry.reason}</em>
            </li>
          ))}
        </ul>
      )}
      {diff.formattedText != null && diff.formattedText !== "" && (
        <>
          <h2>Changes as text for the prompt</h2>
          <p className="toolbar"><CopyButton text={diff.formattedText} label="Copy the changes" /></p>
          <pre className="prompt" tabIndex={0} aria-label="Changes as text for the prompt">{diff.formattedText}</pre>
        </>
      )}
    </>
  );
}

function fieldsOf(search: URLSearchParams): Fields {
  return Object.fromEntries(NAMES.map((name) => [name, search.get(name) ?? DEFAULTS[name]])) as unknown as Fields;
}

/** Return the members of the request that both routes take. All are named, so that none comes from the session's last window. */
function requestOf(fields: Fields, scope: string | null) {
  const goals = fields.goals.split("\n").map(bare).filter((goal) => goal !== "");
  return {
    goals,
    query: fields.query,
    maxFacts: numberOf(fields.maxFacts),
    ...(fields.maxTokens === "" ? {} : { maxTokens: numberOf(fields.maxTokens) }),
    format: fields.format,
    fill: goals.length === 0 && fields.query === "" ? "salience" : "none",
    includeRules: goals.length > 0,
    explain: true,
    citations: fields.sources === "numbered",
    ...(scope === null ? {} : { scope }),
  };
}

/** Return the number in a text; a text without one as it is, which the server refuses with the name of the field. */
function numberOf(text: string): number | string {
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

function atomOf({ predicate, args, negated }: { predicate: string; args: string[]; negated: boolean }) {
  return { predicate, args, negated };
}

function keyOf(entry: Entry): string {
  const text = atomText(atomOf(entry));
  return entry.scope == null ? text : `${text} @${entry.scope}`;
}

function categoryName(category: string): string {
  return CATEGORIES[category] ?? category;
}

function facts(count: number): string {
  return count === 1 ? "1 fact" : `${count.toLocaleString("en")} facts`;
}

function decimal(value: unknown): string | null {
  return typeof value === "number" ? value.toFixed(3) : null;
}

function percent(value: unknown): string | null {
  return typeof value === "number" && value > 0 ? `${Math.round(value * 100)} % of the best match` : null;
}

/** Return a goal without `?-` and its final dot. */
function bare(goal: string): string {
  return goal.trim().replace(/^\?-\s*/, "").replace(/\.$/, "");
}
