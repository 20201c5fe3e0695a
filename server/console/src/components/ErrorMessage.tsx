// An error of the server, with what the reader can do about it.
import { ApiError } from "../api/client";

export function ErrorMessage({ error, text }: { error: unknown; text?: string }) {
  if (!(error instanceof ApiError)) return <p role="alert" className="error">{String(error)}</p>;
  const lines = text?.split("\n");
  return (
    <div role="alert" className="error">
      <p>
        <strong>{titleOf(error)}</strong> {error.message}
      </p>
      {error.textErrors.map((mistake, index) => (
        <div key={index} className="mistake">
          {lines !== undefined && (
            <pre>
              {lines[mistake.line - 1] ?? ""}
              {"\n"}
              {" ".repeat(Math.max(0, mistake.column - 1))}^
            </pre>
          )}
          <p>
            Line {mistake.line}, column {mistake.column}: {mistake.message}
            {mistake.hint != null && mistake.hint !== "" && <> <em>{mistake.hint}</em></>}
          </p>
        </div>
      ))}
    </div>
  );
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
