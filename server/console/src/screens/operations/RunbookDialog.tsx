// The part of the runbook about an alert.
import { Dialog } from "../../components/Dialog";
import { entryOf } from "./runbook";

export default function RunbookDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const entry = entryOf(name);
  return (
    <Dialog title={name} onClose={onClose}>
      {entry === null ? <p>The runbook has nothing about this alert.</p> : (
        <>
          <p><WithCode text={entry.meaning} /></p>
          <ul>{entry.steps.map((step) => <li key={step}><WithCode text={step} /></li>)}</ul>
        </>
      )}
      <p className="soft">From <code>docs/operations/runbook.md</code>, the runbook of the documentation.</p>
      <p className="toolbar"><button type="button" onClick={onClose} data-focused>Close</button></p>
    </Dialog>
  );
}

function WithCode({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part.replaceAll("*", "")))}</>;
}
