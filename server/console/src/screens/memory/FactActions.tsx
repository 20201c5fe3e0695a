// What can be seen of a fact and done with it: its sources, timeline and proof; correct and forget with a preview.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo } from "../../address";
import { dataOf, send, type Schemas } from "../../api/client";
import { useCheck, useMayWrite } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { Editor } from "../../components/Editor";
import { ErrorMessage } from "../../components/ErrorMessage";
import { ImpactOf, useImpact, type Change } from "../../components/ImpactView";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { instantText } from "../../time";
import { atomOf, useRefresh } from "../facts/requests";
import { useEpisodeFacts, type Row } from "./requests";

interface Properties {
  fact: Row;
  onMessage: (message: string) => void;
}

export function FactActions({ fact, onMessage }: Properties) {
  const [search] = useSearchParams();
  const mayWrite = useMayWrite();
  const [dialog, setDialog] = useState<"correct" | "forget" | null>(null);
  const text = atomText(fact);
  const close = (message: string | null) => {
    setDialog(null);
    if (message !== null) onMessage(message);
  };
  return (
    <section className="fact-card" aria-label={`About ${text}`}>
      <p><code>{text}</code></p>
      <Sources fact={fact} />
      <p className="toolbar">
        <Link href={linkTo("memory", search, { part: "timeline", about: text })}>Timeline</Link>
        <Link href={linkTo("playground", search, { goal: text })}>Why it holds</Link>
        <Link href={linkTo("graph", search, { constant: fact.args[0] ?? "" })}>Graph</Link>
        {mayWrite && <button type="button" onClick={() => setDialog("correct")}>Correct …</button>}
        {mayWrite && <button type="button" className="danger" onClick={() => setDialog("forget")}>Forget …</button>}
      </p>
      {dialog === "correct" && <CorrectDialog fact={fact} onClose={close} />}
      {dialog === "forget" && <ForgetDialog text={text} onClose={close} />}
    </section>
  );
}

/** Who said a fact and where it is from, since when it is valid, and how sure it is. */
export function Sources({ fact }: { fact: Row }) {
  const spans = fact.evidence ?? [];
  const { messages } = useEpisodeFacts(spans.map(({ episode }) => episode));
  const { source } = fact.metadata as { source?: unknown };
  const details = [
    ...(fact.validFrom === null ? [] : [`since ${instantText(fact.validFrom)}`]),
    ...(fact.validUntil === null ? [] : [`until ${instantText(fact.validUntil)}`]),
    ...(fact.confidence === null ? [] : [`confidence ${fact.confidence}`]),
    ...(typeof source === "string" ? [`from ${source}`] : []),
  ];
  return (
    <>
      <p className="soft">{details.join(" · ")}</p>
      <ul className="sources">
        {spans.slice(0, 5).map(({ episode, start, end }) => {
          const message = messages.get(episode);
          if (message === undefined) return null;
          const words = [...message.text].slice(start ?? 0, end ?? undefined).join("");
          return <li key={`${episode} ${start ?? 0}`}>Said by <strong>{message.speaker}</strong> on {instantText(message.at)}: “{words}”</li>;
        })}
        {spans.length === 0 && <li className="soft">No message is recorded as its evidence.</li>}
      </ul>
    </>
  );
}

type Close = (message: string | null) => void;

function CorrectDialog({ fact, onClose }: { fact: Row; onClose: Close }) {
  const { connection } = useConnection();
  const refresh = useRefresh();
  const check = useCheck("goal");
  const [text, setText] = useState(atomText(fact));
  const [reason, setReason] = useState("");
  const [change, setChange] = useState<Change | null>(null);
  const impact = useImpact(change);
  const correct = useMutation({
    mutationFn: async () => (await send(connection, "/memory/correct", { body: { old: atomOf(fact), new: { text }, reason, scope: fact.scope } })).json(),
    onSuccess: async () => {
      onClose(`Corrected: ${text}`);
      await refresh();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    correct.mutate();
  };
  return (
    <Dialog title="Correct a fact" onClose={() => onClose(null)}>
      <form onSubmit={submit}>
        <p className="soft">The old fact stays in the history, with your reason. The new one has its evidence.</p>
        <Editor label="New fact" value={text} onChange={setText} check={check} />
        <div className="fields"><label className="wide">Reason <input value={reason} required maxLength={1000} onChange={(event) => setReason(event.target.value)} autoComplete="off" /></label></div>
        {change !== null && <ImpactOf impact={impact} text={text} />}
        {correct.error !== null && <ErrorMessage error={correct.error} text={text} />}
        <p className="toolbar">
          <button type="button" onClick={() => setChange({ forget: [atomOf(fact)], tell: [{ text }], scope: fact.scope ?? null })}>Preview</button>
          <button type="submit" className="primary" disabled={reason.trim() === "" || text.trim() === atomText(fact) || correct.isPending}>Correct</button>
          <button type="button" onClick={() => onClose(null)}>Cancel</button>
        </p>
      </form>
    </Dialog>
  );
}

const WHY: Record<Schemas["ForgottenFact"]["why"], string> = { asked: "", evidence: "based on a message that goes", summary: "a summary of what goes" };

/** Show what would be forgotten with a fact, and forget it on confirmation. */
export function ForgetDialog({ text, onClose }: { text: string; onClose: Close }) {
  const { connection, client } = useConnection();
  const refresh = useRefresh();
  const preview = useQuery({
    queryKey: ["preview", connection, "forget", text],
    queryFn: ({ signal }) => dataOf(client.POST("/memory/forget", { body: { about: text, dryRun: true } as never, params: {} as never, signal })),
    retry: false,
    gcTime: 0,
  });
  const forget = useMutation({
    mutationFn: () => dataOf(client.POST("/memory/forget", { body: { about: text, dryRun: false } as never, params: {} as never })),
    onSuccess: async ({ factCount, textCount, texts }) => {
      onClose(`Forgotten: ${count(factCount, "fact")}, ${count(textCount, "message")}.`);
      await refresh(texts.map(({ episode }) => episode));
    },
  });
  const lost = preview.data;
  return (
    <Dialog title="Forget a fact" onClose={() => onClose(null)}>
      <p>Forgetting <code>{text}</code> also removes the messages that it is based on, and it cannot be undone. To end a value, correct it or store a newer one instead.</p>
      {preview.error !== null && <ErrorMessage error={preview.error} />}
      {preview.isPending && <p role="status">Looking for what would go …</p>}
      {lost !== undefined && (
        <div tabIndex={0} role="region" aria-label="What would be forgotten" className="scroll">
          <p role="status"><strong>{count(lost.factCount, "fact")}, {count(lost.textCount, "message")} and {count(lost.conclusionCount, "conclusion")} would go.</strong></p>
          <ul>
            {lost.facts.filter(({ fact }) => !fact.startsWith("said(")).map(({ fact, why }) => <li key={fact}><code>{fact}</code> <span className="soft">{WHY[why]}</span></li>)}
            {lost.texts.map(({ episode, speaker, text: words }) => <li key={episode}>{speaker}: “{words}”</li>)}
            {lost.conclusions.map((each) => <li key={each}>no longer follows: <code>{each}</code></li>)}
          </ul>
        </div>
      )}
      {forget.error !== null && <ErrorMessage error={forget.error} />}
      <p className="toolbar">
        <button type="button" className="danger" onClick={() => forget.mutate()} disabled={lost === undefined || forget.isPending}>Forget for good</button>
        <button type="button" onClick={() => onClose(null)} data-focused>Cancel</button>
      </p>
    </Dialog>
  );
}

function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
