// Dialogs that add, edit, expire and retract facts.
import { useMutation } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { send, type Schemas, type TextError } from "../../api/client";
import { parseExactly } from "../../api/exactJson";
import { useCheck, usePredicates } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { Editor } from "../../components/Editor";
import { ErrorMessage } from "../../components/ErrorMessage";
import { ImpactOf, useImpact, type Change } from "../../components/ImpactView";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { atomOf, assertionOf, replaceFact, serverTime, useRefresh, type StoredFact } from "./requests";
import { inputTime, timeOf } from "./time";

interface Closing {
  /** Called with what was done, or with null if nothing was. */
  onClose: (message: string | null) => void;
}

/** Return a mutation that reads everything again and closes its dialog with a message. */
function useWrite<T>(write: (value: T) => Promise<string>, onClose: Closing["onClose"]) {
  const refresh = useRefresh();
  return useMutation({
    mutationFn: write,
    onSuccess: async (message) => {
      onClose(message);
      await refresh();
    },
  });
}

export function AddDialog({ start, onClose }: { start: string } & Closing) {
  const { connection } = useConnection();
  const predicates = usePredicates();
  const check = useCheck("program");
  const [text, setText] = useState(start);
  const [confidence, setConfidence] = useState("");
  const [validUntil, setValidUntil] = useState("");
  const facts = linesOf(text);
  const add = useWrite(async () => {
    const details = { scope: connection.scope, confidence: confidence === "" ? null : Number(confidence), validUntil: timeOf(validUntil) };
    const bodies = facts.map((line) => ({ text: line, ...details }));
    if (bodies.length === 1) return await (await send(connection, "/tell", { body: bodies[0] })).text();
    const answer = (await (await send(connection, "/assert/facts", { body: { facts: bodies } })).json()) as Schemas["Stored"];
    const discarded = answer.discarded === undefined ? "" : `, ${answer.discarded} discarded`;
    return `${answer.asserted} new, ${answer.updated} already stored${discarded}.`;
  }, onClose);
  const checkLines = (lines: string): Promise<TextError[]> => check(lines.split("\n").map((line) => (/[^\s.]\s*$/.test(line) ? `${line}.` : line)).join("\n"));
  const submit = () => {
    if (facts.length > 0) add.mutate(undefined);
  };
  return (
    <Dialog title="Add facts" onClose={() => onClose(null)}>
      <Editor label="Facts, one a line" value={text} onChange={setText} onRun={submit} check={checkLines} predicates={predicates} placeholder="parent(ann, bob)" numbered focused />
      <div className="fields">
        <ConfidenceField value={confidence} onChange={setConfidence} />
        <TimeField label="Valid until (optional)" value={validUntil} onChange={setValidUntil} />
      </div>
      {add.error !== null && <ErrorMessage error={add.error} text={text} />}
      <Buttons onCancel={() => onClose(null)}>
        <button type="button" className="primary" onClick={submit} disabled={facts.length === 0 || add.isPending}>
          {facts.length > 1 ? `Add ${facts.length} facts` : "Add"}
        </button>
      </Buttons>
    </Dialog>
  );
}

export function EditDialog({ fact, onClose }: { fact: StoredFact } & Closing) {
  const { connection } = useConnection();
  const declared = usePredicates().find((each) => each.predicate === fact.predicate && each.arity === fact.args.length)?.args;
  const [args, setArgs] = useState<readonly string[]>(fact.args);
  const [negated, setNegated] = useState(fact.negated);
  const [confidence, setConfidence] = useState(fact.confidence?.toString() ?? "");
  const [validUntil, setValidUntil] = useState(inputTime(fact.validUntil));
  const [metadata, setMetadata] = useState(Object.keys(fact.metadata).length === 0 ? "" : JSON.stringify(fact.metadata));
  const [change, setChange] = useState<Change | null>(null);
  const parsed = objectOf(metadata);
  const impact = useImpact(change);
  const after = {
    ...assertionOf(fact),
    args: [...args],
    negated,
    confidence: confidence === "" ? null : Number(confidence),
    metadata: parsed ?? {},
    // The field has no milliseconds: an end that was not edited stays as it is.
    validUntil: validUntil === inputTime(fact.validUntil) ? fact.validUntil : timeOf(validUntil),
  };
  const save = useWrite(async () => {
    await replaceFact(connection, fact, after);
    return `Saved: ${atomText(after)}`;
  }, onClose);
  return (
    <Dialog title={`Edit ${fact.predicate}`} onClose={() => onClose(null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate(undefined);
        }}
      >
        <div className="fields">
          {args.map((value, index) => (
            <label key={index}>
              {declared?.[index] ?? `Argument ${index + 1}`}
              <input value={value} spellCheck={false} onChange={(event) => setArgs(args.map((old, position) => (position === index ? event.target.value : old)))} />
            </label>
          ))}
          <ConfidenceField value={confidence} onChange={setConfidence} />
          <TimeField label="Valid until (optional)" value={validUntil} onChange={setValidUntil} />
          <label className="wide">
            Metadata (a JSON object, optional)
            <input value={metadata} spellCheck={false} aria-invalid={parsed === null} onChange={(event) => setMetadata(event.target.value)} />
          </label>
          <label className="inline"><input type="checkbox" checked={negated} onChange={(event) => setNegated(event.target.checked)} /> Negative: known to be false</label>
        </div>
        {parsed === null && <p className="warning">The metadata is not a JSON object.</p>}
        {change !== null && <ImpactOf impact={impact} />}
        {save.error !== null && <ErrorMessage error={save.error} />}
        <Buttons onCancel={() => onClose(null)}>
          <button type="button" onClick={() => setChange({ forget: [atomOf(fact)], tell: [after] })} disabled={parsed === null}>Preview</button>
          <button type="submit" className="primary" disabled={parsed === null || save.isPending}>Save</button>
        </Buttons>
      </form>
    </Dialog>
  );
}

export function ExpireDialog({ fact, onClose }: { fact: StoredFact } & Closing) {
  const { connection } = useConnection();
  const [end, setEnd] = useState(inputTime(fact.validUntil));
  const impact = useImpact({ forget: [atomOf(fact)], scope: fact.scope });
  const expire = useWrite(async () => {
    const validUntil = timeOf(end) ?? serverTime(await send(connection, "/health"));
    await send(connection, "/tell", { body: { ...assertionOf(fact), validUntil } });
    return end === "" ? `Expired: ${atomText(fact)}` : `${atomText(fact)} ends at ${end.replace("T", " ")}`;
  }, onClose);
  return (
    <Dialog title="Expire a fact" onClose={() => onClose(null)}>
      <p><code>{atomText(fact)}</code> no longer holds from its end on. Questions about earlier points in time still have it.</p>
      <div className="fields"><TimeField label="End (empty: now)" value={end} onChange={setEnd} /></div>
      <ImpactOf impact={impact} />
      {expire.error !== null && <ErrorMessage error={expire.error} />}
      <Buttons onCancel={() => onClose(null)}>
        <button type="button" className="danger" onClick={() => expire.mutate(undefined)} disabled={expire.isPending}>Expire</button>
      </Buttons>
    </Dialog>
  );
}

export function RetractFactDialog({ fact, onClose }: { fact: StoredFact } & Closing) {
  const { connection } = useConnection();
  const body = { ...atomOf(fact), count: false };
  const retract = async () => (await send(connection, "/retract", { body })).text();
  return <RetractDialog title="Retract a fact" text={atomText(fact)} change={{ forget: [atomOf(fact)], scope: fact.scope }} write={retract} onClose={onClose} />;
}

/** Show what no longer holds without some facts or rules, and retract them on confirmation. A null `change` has no preview. */
export function RetractDialog({ title, text, change, write, onClose }: { title: string; text: string; change: Change | null; write: () => Promise<string> } & Closing) {
  const impact = useImpact(change);
  const retract = useWrite(write, onClose);
  return (
    <Dialog title={title} onClose={() => onClose(null)}>
      <p><code>{text}</code></p>
      {change !== null && <ImpactOf impact={impact} />}
      {retract.error !== null && <ErrorMessage error={retract.error} />}
      <Buttons onCancel={() => onClose(null)}>
        <button type="button" className="danger" onClick={() => retract.mutate(undefined)} disabled={impact.isFetching || retract.isPending}>Retract</button>
      </Buttons>
    </Dialog>
  );
}

function Buttons({ onCancel, children }: { onCancel: () => void; children: ReactNode }) {
  return (
    <p className="toolbar">
      {children}
      <button type="button" onClick={onCancel}>Cancel</button>
    </p>
  );
}

function ConfidenceField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <label>
      Confidence, 0 to 1 (optional)
      <input type="number" min="0" max="1" step="any" value={value} onChange={(event) => onChange(event.target.value)} />
    </label>
  );
}

function TimeField({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  return (
    <label>
      {label}
      <input type="datetime-local" step="1" value={value} onChange={(event) => onChange(event.target.value)} />
    </label>
  );
}

/** Return the facts of a text with one fact a line, without their final dots. */
function linesOf(text: string): string[] {
  return text.split("\n").map((line) => line.trim().replace(/\.$/, "").trim()).filter((line) => line !== "");
}

/** Return the object that a JSON text stands for; an empty one for an empty text, null for anything else. */
function objectOf(text: string): Record<string, unknown> | null {
  if (text.trim() === "") return {};
  try {
    const value = parseExactly(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
