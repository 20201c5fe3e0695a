// An error of the server, with what the reader can do about it.
import { ApiError } from "../api/client";

export function ErrorMessage({ error, text }: { error: unknown; text?: string }) {
  if (!(error instanceof ApiError)) return <p role="alert" className="error">{String(error)}</p>;
  const lines = text?.split("\n");
  const mistakes = error.textErrors;
  // The message of an error about a text repeats its mistakes; each is shown once, below its place.
  return (
    <div role="alert" className="error">
      <p>
        <strong>{mistakes.length > 0 ? `${fieldOf(error)} has a mistake.` : titleOf(error)}</strong> {mistakes.length === 0 && error.message}
      </p>
      {mistakes.map((mistake, index) => (
        <div key={index} className="mistake">
          {(lines !== undefined || mistake.source !== undefined) && (
            <pre tabIndex={0} aria-label={`Line ${mistake.line}`}>
              {mistake.source ?? lines?.[mistake.line - 1] ?? ""}
              {"\n"}
              {" ".repeat(Math.max(0, mistake.column - 1))}^
            </pre>
          )}
          <p>
            Line {mistake.line}, column {mistake.column}: {mistake.message}
            {mistake.hint != null && mistake.hint !== "" && <>; <em>{mistake.hint}</em></>}
          </p>
        </div>
      ))}
    </div>
  );
}

const SUBJECTS: Record<string, string> = { text: "The text", about: "The fact or predicate" };

/** Return the field of the request that an error is about, as a subject. */
function fieldOf(error: ApiError): string {
  const [field] = Object.keys((error.details["fields"] ?? {}) as object);
  const goal = /^goals\[(\d+)\]$/.exec(field ?? "")?.[1];
  if (goal !== undefined) return `Goal ${Number(goal) + 1}`;
  return field === undefined ? "The text" : SUBJECTS[field] ?? field;
}

function titleOf(error: ApiError): string {
  switch (error.status) {
    case 0:
      return "No connection.";
    case 401:
      return "An API key is required.";
    case 403:
      return "Your key does not permit this (403).";
    case 422:
      return "The limit of this request was reached.";
    case 429:
      return "Too many requests.";
    default:
      return error.status >= 500 ? "The server failed." : "The request was refused.";
  }
}
