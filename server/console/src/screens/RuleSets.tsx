// Rule sets: what is deployed, versions, differences, the impact of an edited text, and rollback.
import { lazy, Suspense, useState } from "react";

import { useAddressParts } from "../address";
import { ErrorMessage } from "../components/ErrorMessage";
import { SubNavigation } from "../components/SubNavigation";
import { Tabs } from "../components/Tabs";
import { timeText, useRuleSets, useVersions, type RuleSet } from "./rulesets/requests";
import { Compare } from "./rulesets/Compare";
import { EditedText } from "./rulesets/EditedText";
import { Versions } from "./rulesets/Versions";
import "./rulesets.css";

const Dependencies = lazy(() => import("./Dependencies"));

export default function RuleSets() {
  const [search] = useAddressParts();
  return (
    <>
      <h1>Rules</h1>
      <SubNavigation />
      {search.get("part") === "dependencies" ? <Suspense fallback={<p role="status">Loading …</p>}><Dependencies /></Suspense> : <RuleSetList />}
    </>
  );
}

function RuleSetList() {
  const [search, change] = useAddressParts();
  const [message, setMessage] = useState<string | null>(null);
  const sets = useRuleSets();
  const name = search.get("set");
  const setScope = search.get("setScope");
  const current = sets.data?.find((each) => each.name === name && each.scope === setScope);
  const show = (set: RuleSet) => change({ set: set.name, setScope: set.scope, view: null, from: null, to: null }, { replace: false });
  return (
    <>
      <p className="soft">A rule set is a unit of rules, declarations and facts, which <code>kbcore deploy</code> replaces as a whole.</p>
      <p role="status">{message}</p>
      {sets.error !== null && <ErrorMessage error={sets.error} />}
      {sets.data?.length === 0 && (
        <section className="card teach">
          <h2>No rule set yet</h2>
          <p>Keep the rules of an application in a file, and deploy them as one unit. Each deployment is a version: here you see what it changed, and go back to an earlier one.</p>
          <pre tabIndex={0} aria-label="Command">kbcore deploy rules.kb --name support --message "first rules"</pre>
          <p>Rules that were added one by one are under <em>Single rules</em>.</p>
        </section>
      )}
      {sets.data !== undefined && sets.data.length > 0 && (
        <ul className="rule-sets card" aria-label="Rule sets">
          {sets.data.map((set) => (
            <li key={`${set.scope ?? ""} ${set.name}`}>
              <strong>{set.name}</strong>
              {set.scope !== null && <span className="kind">{set.scope}</span>}
              <span>version {set.version}</span>
              <span className="soft">
                <time dateTime={new Date(set.deployedAt).toISOString()}>{timeText(set.deployedAt)}</time>, {contentsText(set)}
              </span>
              <button type="button" aria-label={`Show ${set.name}`} aria-pressed={set === current} onClick={() => show(set)}>Show</button>
            </li>
          ))}
        </ul>
      )}
      {sets.data !== undefined && name !== null && current === undefined && <p className="warning">The rule set {name} does not exist here.</p>}
      {current !== undefined && <RuleSetView key={`${current.scope ?? ""} ${current.name}`} set={current} onMessage={setMessage} />}
    </>
  );
}

function RuleSetView({ set, onMessage }: { set: RuleSet; onMessage: (message: string) => void }) {
  const [search, change] = useAddressParts();
  const query = useVersions(set);
  if (query.error !== null) return <ErrorMessage error={query.error} />;
  const versions = query.data;
  if (versions === undefined) return <p role="status">Loading …</p>;
  return (
    <section aria-label={`Rule set ${set.name}`}>
      <h2>{set.name} <span className="soft">version {set.version}</span></h2>
      <Tabs
        label="About the rule set"
        selected={search.get("view") ?? "versions"}
        onSelect={(view) => change({ view })}
        tabs={[
          { id: "versions", title: "Versions", content: () => <Versions set={set} versions={versions} onMessage={onMessage} /> },
          { id: "compare", title: "Compare", content: () => <Compare set={set} versions={versions} /> },
          { id: "impact", title: "Impact of an edit", content: () => <EditedText set={set} /> },
        ]}
      />
    </section>
  );
}

function contentsText({ rules, declarations, facts }: RuleSet): string {
  const parts = [[rules, "rule"], [declarations, "declaration"], [facts, "fact"]] as const;
  const texts = parts.filter(([count]) => count > 0).map(([count, noun]) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`);
  return texts.length === 0 ? "empty" : texts.join(", ");
}
