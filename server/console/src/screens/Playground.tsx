// Run goals and look at their answers, proofs and plans.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from "react";

import { useAddress, useAddressParts } from "../address";
import { dataOf, outcomeOf, send, type Schemas } from "../api/client";
import { useCheck, usePredicates } from "../api/queries";
import { CopyButton } from "../components/CopyButton";
import { Editor } from "../components/Editor";
import { ErrorMessage } from "../components/ErrorMessage";
import { HowToView } from "../components/HowToView";
import { PlanView } from "../components/PlanView";
import { ProofOutline } from "../components/ProofOutline";
import { Tabs } from "../components/Tabs";
import { VirtualTable } from "../components/VirtualTable";
import { WhyNotView } from "../components/WhyNotView";
import { useConnection } from "../connection";
import { csvText, download } from "../download";
import { useGoals } from "../goals";
import { atomText } from "../language/atom";
import { parseGoal, type ParsedGoal } from "../language/goal";
import { goalsOf, isQuestion, programOf } from "../language/goals";
import { NotEmptyHint } from "./NotEmptyHint";
import { SuggestedGoals } from "./playground/SuggestedGoals";
import "./playground.css";

const ProofDrawing = lazy(() => import("../components/ProofDrawing"));

const MAX_ANSWERS = 10_000;
const ARROW = "application/vnd.apache.arrow.stream";

type AnswerRow = Schemas["Row"] & { bindings?: Record<string, string> };

interface Answers {
  goal: string;
  parsed: ParsedGoal;
  rows: AnswerRow[];
}

/** The answers of each goal of a text, all from one state of the knowledge base. */
interface Run {
  each: readonly Answers[];
  ms: number;
  unknown: string | null;
}

export default function Playground() {
  const { connection, client } = useConnection();
  const [search, change] = useAddressParts();
  const [address, tab] = [search.get("goal"), search.get("tab")];
  const [draft, setDraft] = useState(address ?? "");
  const [run, setRun] = useState(0);
  const [selected, setSelected] = useState(0);
  const predicates = usePredicates();
  const checkGoal = useCheck("goal");
  const checkProgram = useCheck("program");
  const check = useCallback(
    async (text: string) => {
      if (isQuestion(text)) return [];
      const goals = goalsOf(text);
      if (goals.length < 2) return checkGoal(text);
      const program = programOf(goals);
      return (await checkProgram(program.text)).map(program.place);
    },
    [checkGoal, checkProgram],
  );

  const { recent, saved, remember, toggle } = useGoals();
  useEffect(() => {
    setDraft(address ?? "");
    if (address !== null) remember(address);
  }, [address, remember]);
  const asksInWords = address !== null && isQuestion(address);
  const answers = useQuery({
    queryKey: ["ask", connection, address, run],
    enabled: address !== null && !asksInWords,
    queryFn: async ({ signal }): Promise<Run> => {
      const text = address ?? "";
      const goals = goalsOf(text).map((goal) => goal.text);
      const started = performance.now();
      const asked = goals.length > 1 ? { goals } : { text };
      const { data, response } = await outcomeOf(
        client.POST("/ask", { body: { ...asked, scope: connection.scope, limit: MAX_ANSWERS } as never, params: {} as never, signal }),
      );
      setSelected(0);
      const rows = (goals.length > 1 ? data : [data]) as unknown as AnswerRow[][];
      return {
        each: rows.map((some, index) => ({ goal: goals[index] ?? text, parsed: parseGoal(goals[index] ?? text), rows: some })),
        ms: performance.now() - started,
        unknown: response.headers.get("X-Unknown-Predicates"),
      };
    },
  });
  const show = (goal: string) => change({ goal, which: null }, { replace: false });
  const start = () => {
    if (draft.trim() === "") return;
    show(draft.trim());
    setRun(run + 1);
  };
  const data = answers.error === null ? answers.data : undefined;
  const which = Math.min(Math.max(0, Number(search.get("which") ?? 1) - 1 || 0), (data?.each.length ?? 1) - 1);
  const current = data?.each[which];
  return (
    <>
      <h1>Playground</h1>
      <section aria-label="Goal" className="card">
        <Editor label="Goal" value={draft} onChange={setDraft} onRun={start} check={check} predicates={predicates} placeholder="ancestor(ann, ?who)" focused />
        <p className="toolbar">
          <button type="button" className="primary" onClick={start} disabled={draft.trim() === ""}>Run</button>
          {address !== null && <button type="button" aria-pressed={saved.includes(address)} onClick={() => toggle(address)}>{saved.includes(address) ? "Saved" : "Save the goal"}</button>}
          {address !== null && <CopyButton text={location.href} label="Copy the link" />}
          {answers.isFetching && <span role="status">Running …</span>}
        </p>
        {answers.error !== null && !asksInWords && <ErrorMessage error={answers.error} text={address ?? ""} />}
      </section>
      {address === null && (
        <>
          <p className="soft">Write a goal, or several, one a line, which are answered from one state; or a question in words.</p>
          <NotEmptyHint />
        </>
      )}
      {(saved.length > 0 || recent.length > 1) && (
        <details className="past-goals">
          <summary>Saved and recent goals</summary>
          <ul aria-label="Saved and recent goals">
            {[...new Set([...saved, ...recent])].map((goal) => <li key={goal}><button type="button" className="chip" onClick={() => show(goal)}>{goal}</button>{saved.includes(goal) && <span className="kind">saved</span>}</li>)}
          </ul>
        </details>
      )}
      {asksInWords && <SuggestedGoals key={address} question={address} onRun={show} />}
      {!asksInWords && data !== undefined && current !== undefined && (
        <>
          {data.each.length > 1 && (
            <GoalList
              run={data}
              selected={which}
              onSelect={(index) => {
                setSelected(0);
                change({ which: index === 0 ? null : String(index + 1) });
              }}
            />
          )}
          <AnswerTable answers={current} run={data} selected={selected} onSelect={setSelected} onOpen={() => change({ tab: "proof" })} />
          <Tabs
            label="Explanations"
            selected={tab ?? (current.rows.length === 0 ? "whynot" : "proof")}
            onSelect={(id) => change({ tab: id })}
            tabs={[
              { id: "proof", title: "Proof", content: () => <ProofOf answers={current} selected={selected} /> },
              { id: "whynot", title: "Why not", content: () => <WhyNotView goal={bare(current.goal)} /> },
              { id: "howto", title: "How to", content: () => <HowToOf answers={current} selected={selected} /> },
              { id: "plan", title: "Plan", content: () => <PlanOf goal={bare(current.goal)} /> },
            ]}
          />
        </>
      )}
    </>
  );
}

/** The goals that were answered together, with the numbers of their answers. */
function GoalList({ run, selected, onSelect }: { run: Run; selected: number; onSelect: (index: number) => void }) {
  return (
    <section aria-label="Goals">
      <p role="status"><strong>{run.each.length}</strong> goals, answered from one state <span className="soft">in {run.ms.toFixed(0)} ms</span></p>
      <ol className="goal-list card">
        {run.each.map(({ goal, rows }, index) => (
          <li key={index}>
            <button type="button" aria-pressed={index === selected} onClick={() => onSelect(index)}><code>{goal}</code> <span className="soft">{answersText(rows.length)}</span></button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function answersText(count: number): string {
  return `${count === MAX_ANSWERS ? "first " : ""}${count.toLocaleString("en")} ${count === 1 ? "answer" : "answers"}`;
}

function AnswerTable({ answers, run, selected, onSelect, onOpen }: { answers: Answers; run: Run; selected: number; onSelect: (index: number) => void; onOpen: () => void }) {
  const { connection } = useConnection();
  const { goal, rows } = answers;
  const { ms, unknown } = run;
  const { columns, cells } = useMemo(() => tableOf(answers), [answers]);
  const [failure, setFailure] = useState<unknown>(null);
  const name = "answers";
  const exportArrow = async () => {
    setFailure(null);
    try {
      const response = await send(connection, "/ask", { body: { text: bare(goal), scope: connection.scope }, headers: { Accept: ARROW } });
      download(`${name}.arrows`, await response.blob());
    } catch (error) {
      setFailure(error);
    }
  };
  return (
    <section aria-label="Answers">
      <p className="toolbar">
        <span role="status">
          <strong>{rows.length === MAX_ANSWERS ? `First ${MAX_ANSWERS.toLocaleString("en")}` : rows.length.toLocaleString("en")}</strong>{" "}
          {rows.length === 1 ? "answer" : "answers"} {run.each.length === 1 && <span className="soft">in {ms.toFixed(0)} ms</span>}
        </span>
        {unknown !== null && <span className="warning">No facts or rules for {decodeURIComponent(unknown)}</span>}
        {rows.length > 0 && (
          <span className="exports">
            Export
            <button type="button" onClick={() => download(`${name}.csv`, new Blob([csvText(columns, rows.map(cells))], { type: "text/csv" }))}>CSV</button>
            <button type="button" onClick={() => download(`${name}.json`, new Blob([JSON.stringify(rows, null, 1)], { type: "application/json" }))}>JSON</button>
            <button type="button" onClick={() => void exportArrow()}>Arrow</button>
          </span>
        )}
      </p>
      {failure !== null && <ErrorMessage error={failure} />}
      {rows.length > 0 && <VirtualTable label="Answers" columns={columns} rows={rows} cells={cells} selected={selected} onSelect={onSelect} onOpen={onOpen} />}
    </section>
  );
}

function tableOf({ parsed, rows }: Answers): { columns: string[]; cells: (row: AnswerRow) => string[] } {
  if (parsed.literals > 1) {
    const columns = parsed.variables.filter((name) => rows.some((row) => `?${name}` in (row.bindings ?? {})));
    return columns.length > 0 ? { columns, cells: ({ bindings = {} }) => columns.map((name) => bindings[`?${name}`] ?? "") } : { columns: ["holds"], cells: () => ["yes"] };
  }
  if (parsed.columns.length === 0) return { columns: ["holds"], cells: (row) => [atomText(row)] };
  const hasConfidence = rows.some((row) => row.confidence !== null);
  return {
    columns: [...parsed.columns.map(({ name }) => name), ...(hasConfidence ? ["confidence"] : [])],
    cells: (row) => [...parsed.columns.map(({ argument }) => row.args[argument] ?? ""), ...(hasConfidence ? [row.confidence?.toString() ?? ""] : [])],
  };
}

function ProofOf({ answers, selected }: { answers: Answers; selected: number }) {
  const { connection, client } = useConnection();
  const [shape, setShape] = useAddress("shape");
  const row = answers.rows[selected];
  const goal = row === undefined || answers.parsed.literals > 1 ? null : atomText(row);
  const proof = useQuery({
    queryKey: ["proof", connection, goal],
    enabled: goal !== null,
    queryFn: async ({ signal }) => {
      const proofs = await dataOf(
        client.POST("/ask", { body: { text: goal ?? "", scope: connection.scope, withProof: true, proofFormat: "dag" } as never, params: {} as never, signal }),
      );
      return (proofs as unknown as Schemas["ProofGraph"][])[0]?.proof ?? null;
    },
  });
  if (answers.parsed.literals > 1) return <p className="soft">Proofs are shown for goals of one atom.</p>;
  if (goal === null) return <p className="soft">The goal has no answers: see “Why not”.</p>;
  if (proof.error !== null) return <ErrorMessage error={proof.error} />;
  if (proof.data == null) return <p role="status">Loading …</p>;
  const drawn = shape === "graph";
  return (
    <>
      <p className="toolbar">
        <span>Why <code>{goal}</code></span>
        <span className="choice" role="group" aria-label="Form of the proof">
          <button type="button" aria-pressed={!drawn} onClick={() => setShape(null)}>Outline</button>
          <button type="button" aria-pressed={drawn} onClick={() => setShape("graph")}>Graph</button>
        </span>
      </p>
      {drawn ? (
        <Suspense fallback={<p role="status">Loading …</p>}>
          <ProofDrawing key={goal} graph={proof.data} />
        </Suspense>
      ) : (
        <ProofOutline key={goal} graph={proof.data} />
      )}
    </>
  );
}

/** What would make a goal without answers true, or the selected answer false. */
function HowToOf({ answers, selected }: { answers: Answers; selected: number }) {
  const row = answers.rows[selected];
  const goal = row === undefined || answers.parsed.literals > 1 ? bare(answers.goal) : atomText(row);
  return <HowToView goal={goal} make={row === undefined ? "true" : "false"} />;
}

function PlanOf({ goal }: { goal: string }) {
  const { connection, client } = useConnection();
  const plan = useQuery({
    queryKey: ["plan", connection, goal],
    queryFn: async ({ signal }) =>
      (await dataOf(
        client.POST("/explain", { body: { text: goal, scope: connection.scope, plan: true, analyze: true, format: "json" } as never, params: {} as never, signal }),
      )) as unknown as Schemas["Plans"],
  });
  if (plan.error !== null) return <ErrorMessage error={plan.error} />;
  return plan.data === undefined ? <p role="status">Loading …</p> : <PlanView plans={plan.data} />;
}

/** Return a goal without `?-` and its final dot, as the fields `text` of the server take it. */
function bare(goal: string): string {
  return goal.trim().replace(/^\?-\s*/, "").replace(/\.$/, "");
}
