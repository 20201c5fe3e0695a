// The difference of two versions of a rule set, which are in the address.
import { useAddressParts } from "../../address";
import { ErrorMessage } from "../../components/ErrorMessage";
import { DifferenceTable } from "./DifferenceTable";
import { useDifference, type RuleSet, type Version } from "./requests";

export function Compare({ set, versions }: { set: RuleSet; versions: readonly Version[] }) {
  const [search, change] = useAddressParts();
  const to = Number(search.get("to") ?? set.version);
  const from = Number(search.get("from") ?? to - 1);
  const difference = useDifference(set, from, to);
  const numbers = [...versions.map(({ version }) => version), 0];
  return (
    <>
      <div className="fields versions">
        <VersionField label="Before" value={from} numbers={numbers} onChange={(number) => change({ from: number, to: String(to) })} />
        <VersionField label="After" value={to} numbers={numbers} onChange={(number) => change({ from: String(from), to: number })} />
      </div>
      {difference.error !== null && <ErrorMessage error={difference.error} />}
      {difference.isFetching && difference.data === undefined && <p role="status">Comparing …</p>}
      {difference.data !== undefined && <DifferenceTable difference={difference.data} before={titleOf(from)} after={titleOf(to)} />}
    </>
  );
}

function VersionField({ label, value, numbers, onChange }: { label: string; value: number; numbers: readonly number[]; onChange: (value: string) => void }) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {!numbers.includes(value) && <option value={value}>{titleOf(value)}</option>}
        {numbers.map((number) => <option key={number} value={number}>{titleOf(number)}</option>)}
      </select>
    </label>
  );
}

function titleOf(version: number): string {
  return version === 0 ? "Version 0 (empty)" : `Version ${version}`;
}
