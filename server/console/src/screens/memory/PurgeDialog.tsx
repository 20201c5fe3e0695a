// Purge a name, a speaker or what is older than a day: a dry run shows what would go before anything does.
import { useMutation } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { dataOf, type Schemas } from "../../api/client";
import { Dialog } from "../../components/Dialog";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { atomText } from "../../language/atom";
import { useRefresh } from "../facts/requests";

type Purged = Schemas["Purged"];
type Kind = "subject" | "speaker" | "before";

const KINDS: { kind: Kind; title: string; label: string }[] = [
  { kind: "subject", title: "What mentions a name", label: "Name" },
  { kind: "speaker", title: "What a speaker said", label: "Speaker" },
  { kind: "before", title: "What is older than a day", label: "Day" },
];

export default function PurgeDialog({ onClose }: { onClose: (message: string | null) => void }) {
  const { client } = useConnection();
  const refresh = useRefresh();
  const [kind, setKind] = useState<Kind>("subject");
  const [value, setValue] = useState("");
  const [shown, setShown] = useState<string | null>(null);
  const asked = value.trim();
  const key = `${kind} ${asked}`;
  const send = (dryRun: boolean) => dataOf(client.POST("/memory/purge", { body: { [kind]: asked, dryRun, limit: 100 } as never, params: {} as never }));
  const preview = useMutation({ mutationFn: () => send(true), onMutate: () => setShown(key) });
  const purge = useMutation({
    mutationFn: () => send(false),
    onSuccess: async ({ factCount, episodeCount, erased, episodes }) => {
      onClose(`Purged: ${count(factCount, "fact")}, ${count(episodeCount, "message")}.${erased ? "" : " Their text leaves the log soon."}`);
      await refresh(episodes.map(({ id }) => id));
    },
  });
  const lost = shown === key ? preview.data : undefined;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    purge.reset();
    preview.mutate();
  };
  const { label } = KINDS.find((each) => each.kind === kind) ?? { label: "" };
  return (
    <Dialog title="Purge" onClose={() => onClose(null)}>
      <p>A purge removes facts and messages, and their text from the log and the snapshots. It cannot be undone.</p>
      <form onSubmit={submit}>
        <div className="fields">
          <label>
            What to purge
            <select value={kind} onChange={(event) => { setKind(event.target.value as Kind); setValue(""); }}>
              {KINDS.map((each) => <option key={each.kind} value={each.kind}>{each.title}</option>)}
            </select>
          </label>
          <label>{label} <input value={value} type={kind === "before" ? "date" : "text"} required spellCheck={false} autoComplete="off" onChange={(event) => setValue(event.target.value)} data-focused /></label>
          <button type="submit" disabled={asked === "" || preview.isPending}>Show what would go</button>
        </div>
      </form>
      {preview.isPending && <p role="status">Looking for what would go …</p>}
      {shown === key && preview.error !== null && <ErrorMessage error={preview.error} />}
      {lost !== undefined && <Lost lost={lost} />}
      {purge.error !== null && <ErrorMessage error={purge.error} />}
      <p className="toolbar">
        <button type="button" className="danger" onClick={() => purge.mutate()} disabled={lost === undefined || lost.factCount + lost.episodeCount === 0 || purge.isPending}>Purge for good</button>
        <button type="button" onClick={() => onClose(null)}>Cancel</button>
      </p>
    </Dialog>
  );
}

function Lost({ lost }: { lost: Purged }) {
  return (
    <div tabIndex={0} role="region" aria-label="What would be purged" className="scroll">
      <p role="status">
        <strong>{count(lost.factCount, "fact")}, {count(lost.episodeCount, "message")} and {lost.truncated && "at least "}{count(lost.conclusionCount, "conclusion")} would go.</strong>
      </p>
      <ul>
        {lost.facts.filter(({ predicate }) => predicate !== "said").map((fact) => <li key={atomText(fact)}><code>{atomText(fact)}</code></li>)}
        {lost.facts.filter(({ predicate }) => predicate === "said").map(({ args }) => <li key={args.join("\n")}>{args[0]}: “{args[1]}”</li>)}
        {lost.conclusions.map(({ text }) => <li key={text}>no longer follows: <code>{text}</code></li>)}
        {lost.goals.length > 0 && <li>{count(lost.goalCount, "standing goal")} would end</li>}
      </ul>
      {lost.rules.length > 0 && <p className="warning">{count(lost.ruleCount, "rule")} with this name would stay: change them yourself.</p>}
      {lost.scopes.length > 0 && <p className="warning">{count(lost.scopeCount, "scope")} with this name would stay: delete them on the screen Scopes.</p>}
      {lost.similar.length > 0 && <p className="soft">Not meant, and staying: {lost.similar.join(", ")}.</p>}
    </div>
  );
}

function count(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
