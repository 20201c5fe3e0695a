// The plan of a goal: strata, rules and operators with estimated and actual rows.
import type { Schemas } from "../api/client";

type Plans = Schemas["Plans"];

interface Step {
  operator: string;
  text: string;
  estimatedRows: number | null;
  rows: number | null;
}
interface Version {
  id: number;
  text: string;
  estimatedRows: number | null;
  rows: number | null;
  rowsRead: number | null;
  steps: Step[];
}
interface Stratum {
  relations: string[];
  recursive: boolean;
  rounds: number | null;
  ms: number | null;
  rules: Version[];
}
interface Plan {
  goal: string;
  scope: string | null;
  answers: number | null;
  ms: number | null;
  rowsMade: number | null;
  rowsRead: number | null;
  rounds: number | null;
  strata?: Stratum[];
  lookUp?: { relation: string; relationRows: number };
}

export function PlanView({ plans }: { plans: Plans }) {
  return (
    <div className="plan">
      {(plans.plans as unknown as Plan[]).map((plan, index) => (
        <section key={index}>
          <p className="soft">
            {plan.scope !== null && <>Scope {plan.scope}. </>}
            {plan.answers !== null && <>{count(plan.answers)} answers in {plan.ms?.toFixed(2)} ms: {count(plan.rowsMade)} new rows, {count(plan.rowsRead)} rows read.</>}
          </p>
          {plan.lookUp !== undefined && (
            <p>
              No rule derives this predicate: one look-up in <code>{plan.lookUp.relation}</code> ({count(plan.lookUp.relationRows)} rows).
            </p>
          )}
          {(plan.strata ?? []).map((stratum, number) => (
            <details key={number} open>
              <summary>
                Stratum {number + 1}: <code>{stratum.relations.join(", ")}</code>
                <span className="soft">
                  {stratum.recursive && " recursive"}
                  {stratum.rounds !== null && `, ${stratum.rounds} rounds`}
                  {stratum.ms !== null && `, ${stratum.ms.toFixed(2)} ms`}
                </span>
              </summary>
              {stratum.rules.map((rule, position) => (
                <div key={position} className="rule-plan">
                  <pre>{rule.text}</pre>
                  <div className="scroll" tabIndex={0} role="group" aria-label="Steps of the rule">
                    <table>
                      <thead>
                        <tr>
                          <th scope="col">Step</th>
                          <th scope="col" className="number">Estimated rows</th>
                          <th scope="col" className="number">Actual rows</th>
                        </tr>
                      </thead>
                      <tbody>
                        {rule.steps.map((step, line) => (
                          <tr key={line}>
                            <td><code>{step.text}</code></td>
                            <td className="number">{count(step.estimatedRows)}</td>
                            <td className="number">{count(step.rows)}</td>
                          </tr>
                        ))}
                      </tbody>
                    </table>
                  </div>
                </div>
              ))}
            </details>
          ))}
        </section>
      ))}
    </div>
  );
}

function count(value: number | null | undefined): string {
  return value == null ? "–" : Math.round(value).toLocaleString("en");
}
