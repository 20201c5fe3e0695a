// Paste rows of a spreadsheet: what would be stored is shown first, and one request stores all of it.
import { useMutation } from "@tanstack/react-query";
import { useMemo, useState, type FormEvent } from "react";

import { dataOf } from "../../api/client";
import { usePredicates } from "../../api/queries";
import { Dialog } from "../../components/Dialog";
import { ErrorMessage } from "../../components/ErrorMessage";
import { VirtualTable } from "../../components/VirtualTable";
import { useConnection } from "../../connection";
import { dayText } from "../../time";
import { useRefresh } from "./requests";
import { cellsOf, factsOf, hasNames, type SheetFact } from "./sheet";

const MAX_MISTAKES = 5;

export default function PasteDialog({ start, onClose }: { start: string; onClose: (message: string | null) => void }) {
  const { connection, client } = useConnection();
  const refresh = useRefresh();
  const predicates = usePredicates();
  const [predicate, setPredicate] = useState(start);
  const [text, setText] = useState("");
  const [names, setNames] = useState<boolean | null>(null);
  const name = predicate.trim();
  const rows = useMemo(() => cellsOf(text), [text]);
  const declared = useMemo(() => predicates.find((each) => each.predicate === name && each.args !== undefined)?.args ?? [], [predicates, name]);
  const isNamed = names ?? hasNames(rows, declared);
  const { facts, mistakes } = useMemo(() => factsOf(rows, name, isNamed, declared), [rows, name, isNamed, declared]);
  const { columns, cells } = useMemo(() => tableOf(facts, declared), [facts, declared]);
  const store = useMutation({
    mutationFn: () => dataOf(client.POST("/assert/facts", { body: { facts: facts.map((fact) => ({ ...fact, scope: connection.scope })) } as never, params: {} as never })),
    onSuccess: async ({ asserted, updated }) => {
      onClose(`${asserted.toLocaleString("en")} new, ${updated.toLocaleString("en")} already stored.`);
      await refresh();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    store.mutate();
  };
  const isReady = name !== "" && facts.length > 0 && mistakes.length === 0;
  return (
    <Dialog title="Paste from a spreadsheet" onClose={() => onClose(null)}>
      <form onSubmit={submit}>
        <div className="fields">
          <label>Predicate <input value={predicate} list="paste-predicates" spellCheck={false} autoComplete="off" onChange={(event) => setPredicate(event.target.value)} /></label>
          <label className="inline"><input type="checkbox" checked={isNamed} onChange={(event) => setNames(event.target.checked)} /> The first row names the columns</label>
          <datalist id="paste-predicates">{[...new Set(predicates.map((each) => each.predicate))].slice(0, 100).map((each) => <option key={each} value={each} />)}</datalist>
          <label className="wide">
            Rows, with tabs between the columns
            <textarea value={text} rows={5} spellCheck={false} placeholder={"ann\tbob\nbob\tcleo"} onChange={(event) => setText(event.target.value)} data-focused />
          </label>
        </div>
        <p className="soft">Each row is a fact. Columns named <code>since</code>, <code>until</code> and <code>confidence</code> are details of the facts.</p>
        {facts.length > 0 && (
          <>
            <p role="status"><strong>{facts.length.toLocaleString("en")}</strong> {facts.length === 1 ? "fact" : "facts"} of <code>{name === "" ? "…" : name}/{facts[0]?.args.length}</code> would be stored in {connection.scope ?? "the base"}.</p>
            <VirtualTable label="Facts that would be stored" columns={columns} rows={facts} cells={cells} />
          </>
        )}
        {mistakes.length > 0 && (
          <div role="alert" className="error">
            {mistakes.slice(0, MAX_MISTAKES).map((mistake) => <p key={mistake}>{mistake}</p>)}
            {mistakes.length > MAX_MISTAKES && <p>{(mistakes.length - MAX_MISTAKES).toLocaleString("en")} more.</p>}
          </div>
        )}
        {store.error !== null && <ErrorMessage error={store.error} />}
        <p className="toolbar">
          <button type="submit" className="primary" disabled={!isReady || store.isPending}>{facts.length === 0 ? "Store" : `Store ${facts.length.toLocaleString("en")} ${facts.length === 1 ? "fact" : "facts"}`}</button>
          <button type="button" onClick={() => onClose(null)}>Cancel</button>
        </p>
      </form>
    </Dialog>
  );
}

function tableOf(facts: readonly SheetFact[], declared: readonly string[]): { columns: string[]; cells: (fact: SheetFact) => string[] } {
  const details = [
    { title: "since", text: ({ validFrom }: SheetFact) => (validFrom === undefined ? "" : dayText(validFrom)) },
    { title: "valid until", text: ({ validUntil }: SheetFact) => (validUntil === undefined ? "" : dayText(validUntil)) },
    { title: "confidence", text: ({ confidence }: SheetFact) => confidence?.toString() ?? "" },
  ].filter(({ text }) => facts.some((fact) => text(fact) !== ""));
  const args = Array.from({ length: facts[0]?.args.length ?? 0 }, (_, index) => declared[index] ?? `argument ${index + 1}`);
  return { columns: [...args, ...details.map(({ title }) => title)], cells: (fact) => [...fact.args, ...details.map(({ text }) => text(fact))] };
}
