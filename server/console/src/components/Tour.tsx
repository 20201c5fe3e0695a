// The panel of the tour, above the screen of its step.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddress } from "../address";
import { dataOf } from "../api/client";
import { useMayWrite } from "../api/queries";
import { useConnection } from "../connection";
import { STEPS } from "../steps";
import { ErrorMessage } from "./ErrorMessage";
import "./Tour.css";

/** The changes that the panel lists; it counts the others. */
const MAX_CHANGES = 20;

export default function Tour() {
  const [search] = useSearchParams();
  const [place, setPlace] = useAddress("tour");
  const number = Number(place);
  const step = STEPS[number - 1];
  if (step === undefined) return null;
  const link = (target: number) => {
    const { screen, parameters } = STEPS[target - 1] ?? step;
    return linkTo(screen, search, { ...parameters, tour: String(target) });
  };
  return (
    <section className="card tour" aria-labelledby="tour-heading">
      <h2 id="tour-heading">Tour, step {number} of {STEPS.length}: {step.title}</h2>
      <p>{step.text}</p>
      {step.rule !== undefined && <RuleOfStep rule={step.rule} />}
      <p className="toolbar">
        {number > 1 && <Link href={link(number - 1)}>Previous</Link>}
        {number < STEPS.length && <Link href={link(number + 1)}>Next: {STEPS[number]?.title}</Link>}
        <Link href={link(number)}>Show this step again</Link>
        <button type="button" onClick={() => setPlace(null)}>End the tour</button>
      </p>
    </section>
  );
}

function RuleOfStep({ rule }: { rule: string }) {
  const { connection, client } = useConnection();
  const queries = useQueryClient();
  const preview = useQuery({
    queryKey: ["preview", connection, rule],
    queryFn: ({ signal }) =>
      dataOf(client.POST("/preview", { body: { teach: rule, scope: connection.scope, limit: MAX_CHANGES } as never, params: {} as never, signal })),
  });
  const mayWrite = useMayWrite();
  const add = useMutation({
    mutationFn: () => dataOf(client.POST("/teach", { body: { text: rule, scope: connection.scope } as never, params: {} as never, parseAs: "text" })),
    onSuccess: () => queries.invalidateQueries(),
  });
  const changes = preview.data;
  return (
    <>
      <pre tabIndex={0} aria-label="Rule">{rule}</pre>
      {preview.error !== null && <ErrorMessage error={preview.error} />}
      {changes !== undefined && (
        <p role="status">
          {changes.counts.becomesTrue === 0 ? "The rule changes nothing." : `With the rule ${changes.counts.becomesTrue} conclusions become true: `}
          {changes.becomesTrue.map(({ text }) => <code key={text} className="chip">{text}</code>)}
          {changes.counts.becomesTrue > changes.becomesTrue.length && "and others."}
        </p>
      )}
      <p className="toolbar">
        <button type="button" onClick={() => add.mutate()} disabled={add.isPending || add.isSuccess || !mayWrite}>Add the rule</button>
        <span role="status" className="soft">{add.isSuccess && "The rule is stored."}</span>
      </p>
      {add.error !== null && <ErrorMessage error={add.error} />}
    </>
  );
}
