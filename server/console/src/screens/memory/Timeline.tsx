// When facts were valid, who said them, and what changed them, with a way to undo a change.
import { useMutation } from "@tanstack/react-query";
import { useEffect, useMemo, useState, type FormEvent } from "react";

import { useAddress } from "../../address";
import { dataOf } from "../../api/client";
import { useMayWrite, usePredicates } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { dayText, instantText } from "../../time";
import { useRefresh } from "../facts/requests";
import { FactActions } from "./FactActions";
import { FactText } from "./FactText";
import { intervalsOf, spanOf, type Interval } from "./history";
import { useEpisodeFacts, useHistory, type HistoryEvent } from "./requests";

const CAUSES: Record<string, string> = {
  assert: "stored",
  retract: "retracted",
  correct: "corrected",
  undo: "by an undo",
  evidence: "more evidence",
  supersede: "ended by a newer value",
  expired: "expired",
  faded: "faded",
  summarised: "summarised",
  fork: "by a fork",
  merge: "by a merge",
  drop_scope: "with its scope",
  purge: "purged",
};

export default function Timeline() {
  const [about, setAbout] = useAddress("about");
  const [draft, setDraft] = useState(about ?? "");
  useEffect(() => setDraft(about ?? ""), [about]);
  const predicates = usePredicates().filter(({ factCount }) => factCount > 0);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setAbout(draft.trim(), { replace: false });
  };
  return (
    <>
      <form className="toolbar" onSubmit={submit}>
        <label className="inline">
          Fact or predicate
          <input value={draft} list="timeline-predicates" onChange={(event) => setDraft(event.target.value)} placeholder="lives_in(mia, ?where)" spellCheck={false} autoComplete="off" />
        </label>
        <datalist id="timeline-predicates">{predicates.map(({ predicate, arity }) => <option key={`${predicate}/${arity}`} value={predicate} />)}</datalist>
        <button type="submit" className="primary" disabled={draft.trim() === ""}>Show</button>
      </form>
      {about === null ? (
        <section className="card teach">
          <h2>When was what believed?</h2>
          <p>Choose a predicate, a fact such as <code>lives_in(mia, Berlin)</code>, or a pattern such as <code>lives_in(mia, ?where)</code>. Each value is a bar from its beginning to its end, with the sentence that it is based on.</p>
          <p>{predicates.filter(({ predicate }) => predicate !== "said").slice(0, 20).map(({ predicate, arity }) => <button key={`${predicate}/${arity}`} type="button" className="chip" onClick={() => setAbout(predicate, { replace: false })}>{predicate}</button>)}</p>
        </section>
      ) : (
        <History key={about} about={about} />
      )}
    </>
  );
}

function History({ about }: { about: string }) {
  const query = useHistory(about);
  const [message, setMessage] = useState<string | null>(null);
  const [selected, setSelected] = useState<string | null>(null);
  const events = query.data?.events ?? [];
  const intervals = useMemo(() => intervalsOf(events), [events]);
  const { messages } = useEpisodeFacts(intervals.flatMap(({ row }) => (row.evidence ?? []).slice(0, 1).map(({ episode }) => episode)));
  const now = Date.now();
  const span = spanOf(intervals, now);
  const current = intervals.find(({ id }) => id === selected);
  if (query.error !== null) return <ErrorMessage error={query.error} />;
  if (query.data === undefined) return <p role="status">Loading …</p>;
  return (
    <>
      <p role="status">{message ?? summaryOf(about, intervals.length, query.data.totalEvents)}</p>
      {intervals.length > 0 && (
        <div className="timeline card">
          <p className="axis soft" aria-hidden="true"><span>{dayText(span.first)}</span><span>{dayText(span.last)}</span></p>
          <ul aria-label="Values">
            {intervals.map((interval) => {
              const [first] = interval.row.evidence ?? [];
              const source = first === undefined ? undefined : messages.get(first.episode);
              const words = source === undefined ? null : [...source.text].slice(first?.start ?? 0, first?.end ?? undefined).join("");
              return (
                <li key={interval.id} className={stateOf(interval, now)}>
                  <button type="button" className="fact" aria-expanded={interval.id === selected} onClick={() => setSelected(interval.id === selected ? null : interval.id)}><FactText fact={interval.row} /></button>
                  <span className="bar-track" aria-hidden="true"><span className="bar-of" style={placeOf(interval, span, now)} /></span>
                  <span className="soft note">
                    {validityText(interval, now)}
                    {source !== undefined && <> · {source.speaker}: “{words}”</>}
                  </span>
                </li>
              );
            })}
          </ul>
        </div>
      )}
      {current !== undefined && <FactActions fact={current.row} onMessage={setMessage} />}
      {events.length > 0 && <Changes events={events} onMessage={setMessage} />}
    </>
  );
}

function summaryOf(about: string, values: number, changes: number): string {
  if (values === 0 && changes === 0) return `No fact has ever matched ${about}.`;
  return `${values} ${values === 1 ? "value" : "values"}, ${changes.toLocaleString("en")} ${changes === 1 ? "change" : "changes"}`;
}

function Changes({ events, onMessage }: { events: readonly HistoryEvent[]; onMessage: (message: string) => void }) {
  const { connection } = useConnection();
  const mayWrite = useMayWrite() && connection.view === null;
  const [undoing, setUndoing] = useState<HistoryEvent | null>(null);
  return (
    <>
      <h2>Changes</h2>
      <ol className="change-list" aria-label="Changes">
        {events.map((event, index) => {
          const row = event.after ?? event.before;
          return (
            <li key={`${event.commitSeq} ${index}`}>
              <time className="soft" dateTime={new Date(event.at).toISOString()}>{instantText(event.at)}</time>
              <span className="what">
                {row === null ? `${event.count ?? 0} facts` : <code>{atomText(row)}</code>} <span className="kind">{CAUSES[event.cause] ?? event.cause}</span>
                {event.reason !== null && <> “{event.reason}”</>}
                {event.key !== null && <span className="soft"> key {event.key}</span>}
              </span>
              {mayWrite && event.cause !== "purge" && <button type="button" aria-label={`Undo … change ${event.commitSeq}`} onClick={() => setUndoing(event)}>Undo …</button>}
            </li>
          );
        })}
      </ol>
      {undoing !== null && (
        <UndoDialog
          event={undoing}
          together={events.filter(({ commitSeq }) => commitSeq === undoing.commitSeq)}
          onClose={(done) => {
            setUndoing(null);
            if (done !== null) onMessage(done);
          }}
        />
      )}
    </>
  );
}

function UndoDialog({ event, together, onClose }: { event: HistoryEvent; together: readonly HistoryEvent[]; onClose: (message: string | null) => void }) {
  const { client } = useConnection();
  const refresh = useRefresh();
  const undo = useMutation({
    mutationFn: () => dataOf(client.POST("/memory/undo", { body: { commitSeq: event.commitSeq } as never, params: {} as never })),
    onSuccess: async ({ retracted, restored }) => {
      onClose(`Undone: ${retracted} retracted, ${restored} restored.`);
      await refresh();
    },
  });
  return (
    <Dialog title={`Undo change ${event.commitSeq}`} onClose={() => onClose(null)}>
      <p>All that this change stored or removed becomes what it was before. In this history it is:</p>
      <ul>
        {together.map(({ before, after }, index) => (
          <li key={index}>
            {after !== null && before === null && <>stored, will be removed: <code>{atomText(after)}</code></>}
            {after === null && before !== null && <>removed, will be restored: <code>{atomText(before)}</code></>}
            {after !== null && before !== null && <>changed, will be as before: <code>{atomText(before)}</code></>}
          </li>
        ))}
      </ul>
      {undo.error !== null && <ErrorMessage error={undo.error} />}
      <p className="toolbar">
        <button type="button" className="danger" onClick={() => undo.mutate()} disabled={undo.isPending}>Undo</button>
        <button type="button" onClick={() => onClose(null)} data-focused>Cancel</button>
      </p>
    </Dialog>
  );
}

function stateOf({ until, removed, from }: Interval, now: number): string {
  if (removed !== null) return "removed";
  if (until !== null && until <= now) return "ended";
  return from > now ? "future" : "current";
}

function validityText(interval: Interval, now: number): string {
  const { from, until, removed } = interval;
  const words = { removed: "", ended: "", future: "from", current: "since" }[stateOf(interval, now)];
  const range = until === null ? `${words ?? ""} ${dayText(from)}`.trim() : `${dayText(from)} – ${dayText(until)}`;
  if (removed === null) return range;
  return `${range}; ${CAUSES[removed.cause] ?? removed.cause} ${dayText(removed.at)}${removed.reason === null ? "" : `: ${removed.reason}`}`;
}

function placeOf({ from, until, removed }: Interval, { first, last }: { first: number; last: number }, now: number): { left: string; width: string } {
  const end = until ?? (removed === null ? Math.max(now, from) : Math.max(removed.at, from));
  const share = (at: number) => ((at - first) / (last - first)) * 100;
  const left = Math.min(99, share(from));
  return { left: `${left}%`, width: `${Math.max(1, Math.min(100, share(end)) - left)}%` };
}
