// The screen of an empty knowledge base: load an example, or take the tour of one.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useLocation, useSearchParams } from "wouter";

import { linkTo } from "../address";
import { dataOf } from "../api/client";
import { useMayWrite } from "../api/queries";
import { ErrorMessage } from "../components/ErrorMessage";
import { useConnection } from "../connection";
import { EXAMPLES, FAMILY, type Example } from "../examples/examples";
import { STEPS } from "../steps";
import "./Start.css";

export default function Start() {
  const { connection, client } = useConnection();
  const [, navigate] = useLocation();
  const [search] = useSearchParams();
  const queries = useQueryClient();
  const load = useMutation({
    mutationFn: async ({ example }: { example: Example; target: string }) =>
      dataOf(client.POST("/teach", { body: { text: example.text, scope: connection.scope } as never, params: {} as never, parseAs: "text" })),
    onSuccess: async (_, { target }) => {
      await queries.invalidateQueries();
      navigate(target);
    },
  });
  const mayWrite = useMayWrite();
  const [first] = STEPS;
  const tour = first === undefined ? "" : linkTo(first.screen, search, { ...first.parameters, tour: "1" });
  return (
    <>
      <h1>Examples</h1>
      <p>
        Load an example into tenant <code>{connection.tenant}</code>, or go to the <Link href={linkTo("playground", search)}>playground</Link>.
      </p>
      {load.error !== null && <ErrorMessage error={load.error} text={load.variables?.example.text ?? ""} />}
      <section className="card tour-offer" aria-labelledby="tour-offer-heading">
        <h2 id="tour-offer-heading">A tour of five steps</h2>
        <p>It loads the family example and shows: {STEPS.map(({ title }) => title.toLowerCase()).join(", ")}.</p>
        <p className="toolbar">
          <button type="button" className="primary" disabled={load.isPending || !mayWrite} onClick={() => load.mutate({ example: FAMILY, target: tour })}>Take the tour</button>
        </p>
      </section>
      <div className="examples">
        {EXAMPLES.map((example) => (
          <section key={example.id} className="card" aria-labelledby={`example-${example.id}`}>
            <h2 id={`example-${example.id}`}>{example.title}</h2>
            <p>{example.description}</p>
            <details>
              <summary>Its facts and rules</summary>
              <pre tabIndex={0} aria-label={`Facts and rules: ${example.title}`}>{example.text}</pre>
            </details>
            <p className="toolbar">
              <button type="button" disabled={load.isPending || !mayWrite} onClick={() => load.mutate({ example, target: linkTo("playground", search, { goal: example.goal }) })}>
                Load: {example.title}
              </button>
            </p>
          </section>
        ))}
      </div>
    </>
  );
}
