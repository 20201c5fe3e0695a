// The stored facts of one predicate, page by page, and what can be done with one of them.
import { useEffect, useMemo, useState } from "react";
import { Link } from "wouter";

import { linkTo, useAddressParts } from "../../address";
import { useMayWrite, usePredicates } from "../../api/queries";
import { ErrorMessage } from "../../components/ErrorMessage";
import { VirtualTable } from "../../components/VirtualTable";
import { atomText } from "../../language/atom";
import { dayText, instantText } from "../../time";
import { labelsText } from "../../view";
import { EditDialog, ExpireDialog, RetractFactDialog } from "./FactDialogs";
import { PAGE_SIZE, useFactPage, type StoredFact } from "./requests";

type Action = "edit" | "expire" | "retract";

interface Properties {
  predicate: string;
  arity: number;
  /** Called with what was done to a fact. */
  onMessage: (message: string | null) => void;
}

export function FactBrowser({ predicate, arity, onMessage }: Properties) {
  const [search, change] = useAddressParts();
  const [selected, setSelected] = useState<number | null>(null);
  const [action, setAction] = useState<Action | null>(null);
  const sign = search.get("sign");
  const filters = Array.from({ length: arity }, (_, index) => search.get(`arg${index + 1}`) ?? "");
  const facts = useFactPage(
    { predicate, args: filters, negated: sign === "positive" ? false : sign === "negative" ? true : null, contains: search.get("contains") ?? "" },
    Math.max(1, Number.parseInt(search.get("page") ?? "1", 10) || 1),
  );
  const rows = facts.data?.rows ?? [];
  const mayWrite = useMayWrite();
  const page = facts.data?.page ?? 1;
  const fact = selected === null ? undefined : rows[Math.min(selected, rows.length - 1)];
  const show = (number: number) => {
    setSelected(null);
    change({ page: number === 1 ? null : String(number) }, { replace: false });
  };
  const close = (message: string | null) => {
    setAction(null);
    if (message !== null) onMessage(message);
  };
  const declared = usePredicates().find((each) => each.predicate === predicate && each.arity === arity)?.args;
  const { columns, cells } = useMemo(() => columnsOf(rows, arity, declared), [rows, arity, declared]);
  return (
    <>
      <div className="fields filters" role="search" aria-label="Filter facts">
        <FilterField label="Contains" value={search.get("contains") ?? ""} placeholder="any text" onChange={(text) => change({ contains: text, page: null })} />
        {filters.map((value, index) => (
          <FilterField key={index} label={`${declared?.[index] ?? `Argument ${index + 1}`} is`} value={value} onChange={(text) => change({ [`arg${index + 1}`]: text, page: null })} />
        ))}
        <label>
          Sign
          <select value={sign ?? ""} onChange={(event) => change({ sign: event.target.value, page: null })}>
            <option value="">Any</option>
            <option value="positive">Positive</option>
            <option value="negative">Negative</option>
          </select>
        </label>
      </div>
      {facts.error !== null && <ErrorMessage error={facts.error} />}
      {facts.data !== undefined && (
        <>
          <p className="toolbar">
            <span role="status">{rows.length === 0 ? "No stored fact matches." : rangeText(page, rows.length, facts.data.total)}</span>
            {facts.data.total > PAGE_SIZE && (
              <span className="exports">
                <button type="button" onClick={() => show(page - 1)} disabled={page === 1}>Previous page</button>
                <button type="button" onClick={() => show(page + 1)} disabled={page * PAGE_SIZE >= facts.data.total}>Next page</button>
              </span>
            )}
          </p>
          {rows.length > 0 && (
            <>
              <VirtualTable label="Facts" columns={columns} rows={rows} cells={cells} selected={fact === undefined ? null : rows.indexOf(fact)} onSelect={setSelected} onOpen={() => mayWrite && setAction("edit")} />
              {fact === undefined ? (
                <p className="soft">Select a fact, by click or with the arrow keys, {mayWrite ? "to edit, expire or retract it." : "to see its proof."}</p>
              ) : (
                <p className="toolbar" role="group" aria-label="The selected fact">
                  <code>{atomText(fact)}</code>
                  {mayWrite && (
                    <>
                      <button type="button" onClick={() => setAction("edit")}>Edit</button>
                      <button type="button" onClick={() => setAction("expire")}>Expire</button>
                      <button type="button" className="danger" onClick={() => setAction("retract")}>Retract</button>
                    </>
                  )}
                  <Link href={linkTo("memory", search, { part: "timeline", about: atomText(fact) })}>Timeline</Link>
                  <Link href={linkTo("playground", search, { goal: atomText(fact) })}>Show the proof</Link>
                </p>
              )}
            </>
          )}
        </>
      )}
      {fact !== undefined && action === "edit" && <EditDialog fact={fact} onClose={close} />}
      {fact !== undefined && action === "expire" && <ExpireDialog fact={fact} onClose={close} />}
      {fact !== undefined && action === "retract" && <RetractFactDialog fact={fact} onClose={close} />}
    </>
  );
}

/** A filter that takes effect on Enter or when it loses the focus. */
function FilterField({ label, value, placeholder = "any value", onChange }: { label: string; value: string; placeholder?: string; onChange: (value: string) => void }) {
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  const finish = () => {
    if (draft !== value) onChange(draft);
  };
  return (
    <label>
      {label}
      <input type="search" value={draft} placeholder={placeholder} spellCheck={false} autoComplete="off" onChange={(event) => setDraft(event.target.value)} onBlur={finish} onKeyDown={(event) => event.key === "Enter" && finish()} />
    </label>
  );
}

function rangeText(page: number, count: number, total: number): string {
  const all = `${total.toLocaleString("en")} ${total === 1 ? "fact" : "facts"}`;
  if (total <= PAGE_SIZE) return all;
  const first = (page - 1) * PAGE_SIZE + 1;
  return `Facts ${first.toLocaleString("en")} to ${(first + count - 1).toLocaleString("en")} of ${all}`;
}

/**
 * Return the columns of facts: their arguments, with the names that are declared for them, and the details that any of them has.
 */
function columnsOf(
  rows: readonly StoredFact[],
  arity: number,
  declared: readonly string[] | undefined,
): { columns: string[]; cells: (fact: StoredFact) => string[] } {
  const details: { title: string; text: (fact: StoredFact) => string }[] = [
    { title: "sign", text: ({ negated }) => (negated ? "negative" : "") },
    { title: "labels", text: ({ labels }) => labelsText(labels) },
    { title: "since", text: ({ validFrom, createdAt }) => (validFrom === null || validFrom === createdAt ? "" : dayText(validFrom)) },
    { title: "confidence", text: ({ confidence }) => confidence?.toString() ?? "" },
    { title: "valid until", text: ({ validUntil }) => (validUntil === null ? "" : instantText(validUntil)) },
    { title: "evidence", text: ({ evidence = [] }) => (evidence.length === 0 ? "" : evidence.length === 1 ? "1 passage" : `${evidence.length} passages`) },
    { title: "metadata", text: ({ metadata }) => (Object.keys(metadata).length === 0 ? "" : JSON.stringify(metadata)) },
  ];
  const shown = details.filter(({ text }) => rows.some((fact) => text(fact) !== ""));
  const args = arity === 0 ? ["fact"] : Array.from({ length: arity }, (_, index) => declared?.[index] ?? `argument ${index + 1}`);
  return {
    columns: [...args, ...shown.map(({ title }) => title)],
    cells: (fact) => [...(arity === 0 ? [fact.predicate] : fact.args), ...shown.map(({ text }) => text(fact))],
  };
}
