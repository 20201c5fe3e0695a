// The editor, loaded when a screen first shows one: it is half of the code of the console.
import { lazy, Suspense, useState, type ComponentProps } from "react";

import type { CodeEditor } from "./CodeEditor";

const Loaded = lazy(async () => ({ default: (await import("./CodeEditor")).CodeEditor }));

export function Editor(properties: ComponentProps<typeof CodeEditor>) {
  const [focusBefore] = useState(() => document.activeElement);
  return (
    <Suspense fallback={<div className="editor" aria-busy="true" />}>
      <Loaded {...properties} focusBefore={focusBefore} />
    </Suspense>
  );
}
