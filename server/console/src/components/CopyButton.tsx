// A button that copies a text, and says that it has.
import { useEffect, useState } from "react";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [state, setState] = useState<"ready" | "copied" | "failed">("ready");
  useEffect(() => setState("ready"), [text]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch (error) {
      // Without permission, or on a page without TLS, browsers refuse access to the clipboard.
      if (!(error instanceof DOMException || error instanceof TypeError)) throw error;
      setState("failed");
    }
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>{label}</button>
      <span role="status" className="soft">
        {state === "copied" && "Copied"}
        {state === "failed" && "The browser refuses access to the clipboard: select the text instead."}
      </span>
    </>
  );
}
