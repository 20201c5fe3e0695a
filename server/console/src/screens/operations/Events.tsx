// Changes of the tenant as they are committed, from the stream of GET /memory/events.
import { useEffect, useState } from "react";

import { useAddress } from "../../address";
import { ApiError, send } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { EventParser, readEvents, type ServerEvent } from "../../events";
import { atomText } from "../../language/atom";

const MAX_LINES = 200;
const RECONNECT_MS = 3000;
const RETRIED = [0, 429, 503];

interface Line {
  key: number;
  type: string;
  time: string;
  text: string;
}

export function Events() {
  const { connection } = useConnection();
  const [predicate, setPredicate] = useAddress("predicate");
  const [draft, setDraft] = useState(predicate ?? "");
  const [isPaused, setPaused] = useState(false);
  const [lines, setLines] = useState<Line[]>([]);
  const [failure, setFailure] = useState<unknown>(null);
  const [isOpen, setOpen] = useState(false);
  // After a pause the stream goes on where it ended; another tenant or filter starts a new one.
  const [parser, setParser] = useState(() => new EventParser());
  useEffect(() => {
    setParser(new EventParser());
    setLines([]);
  }, [connection, predicate]);
  useEffect(() => setDraft(predicate ?? ""), [predicate]);
  useEffect(() => {
    if (isPaused) return;
    const abort = new AbortController();
    let timer: number | undefined;
    const open = async () => {
      const query = new URLSearchParams();
      if (predicate !== null) query.set("predicate", predicate);
      if (connection.scope !== null) query.set("scope", connection.scope);
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (parser.lastId !== "") headers["Last-Event-ID"] = parser.lastId;
      try {
        const response = await send(connection, `/memory/events?${query}`, { headers, signal: abort.signal });
        if (response.body === null) return;
        setFailure(null);
        setOpen(true);
        await readEvents(response.body, parser, (events) => setLines((previous) => [...events.map(lineOf).reverse(), ...previous].slice(0, MAX_LINES)));
      } catch (error) {
        if (abort.signal.aborted) return;
        // A connection that breaks during the stream is a TypeError.
        if (!(error instanceof TypeError)) setFailure(error);
        if (error instanceof ApiError && !RETRIED.includes(error.status)) return;
      } finally {
        setOpen(false);
      }
      if (!abort.signal.aborted) timer = window.setTimeout(() => void open(), RECONNECT_MS);
    };
    void open();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [connection, predicate, isPaused, parser]);
  return (
    <>
      <form
        className="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          setPredicate(draft.trim());
        }}
      >
        <label className="inline">Predicate <input value={draft} onChange={(event) => setDraft(event.target.value)} onBlur={() => setPredicate(draft.trim())} placeholder="all" spellCheck={false} autoComplete="off" /></label>
        <button type="button" aria-pressed={isPaused} onClick={() => setPaused(!isPaused)}>{isPaused ? "Continue" : "Pause"}</button>
        <button type="button" disabled={lines.length === 0} onClick={() => setLines([])}>Clear</button>
        <span className="soft" role="status">{isPaused ? "Paused" : isOpen ? "Connected" : "Connecting …"}</span>
      </form>
      {failure !== null && <ErrorMessage error={failure} />}
      {lines.length === 0 ? (
        <p className="soft">No events yet. Facts and rules that are stored or retracted from now on appear here, also those of other clients.</p>
      ) : (
        <div className="events" tabIndex={0} role="log" aria-label="Events, newest first">
          <ol>
            {lines.map(({ key, type, time, text }) => (
              <li key={key}><time>{time}</time> <span className="kind">{type}</span> <code>{text}</code></li>
            ))}
          </ol>
        </div>
      )}
    </>
  );
}

let sequence = 0;

function lineOf(event: ServerEvent): Line {
  sequence += 1;
  const data = JSON.parse(event.data) as Record<string, unknown>;
  const time = typeof data["timestamp"] === "number" ? new Date(data["timestamp"]).toLocaleTimeString() : "";
  return { key: sequence, type: event.type.replaceAll("_", " "), time, text: textOf(data) };
}

function textOf({ atom, rule, change, sourceScope, scope, reason }: Record<string, unknown>): string {
  const where = typeof scope === "string" ? ` in ${scope}` : "";
  if (typeof atom === "object" && atom !== null) return atomText(atom as Parameters<typeof atomText>[0]) + where;
  if (typeof rule === "object" && rule !== null) return String((rule as { text?: string }).text ?? "") + where;
  if (typeof change === "string") return `${change}${typeof sourceScope === "string" ? ` of ${sourceScope}` : ""}${where}`;
  return typeof reason === "string" ? reason.replaceAll("_", " ") : "";
}
