// A modal dialog: Escape closes it, and the focus returns to where it was. Its first element has the focus, or the
// button with `data-focused`: `autoFocus` of React has no effect before the dialog is shown.
import { useEffect, useId, useRef, type ReactNode } from "react";

import "./dialog.css";

interface Properties {
  title: string;
  /** Called when the dialog closes, by Escape or by a button of its own. */
  onClose: () => void;
  children: ReactNode;
}

export function Dialog({ title, onClose, children }: Properties) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const previous = document.activeElement;
    if (element.current?.open === false) element.current.showModal();
    element.current?.querySelector<HTMLElement>("[data-focused]")?.focus();
    return () => {
      // The element with the focus may be gone, such as the row that was retracted.
      if (previous instanceof HTMLElement && previous.isConnected) previous.focus();
      else document.getElementById("main")?.focus();
    };
  }, []);
  return (
    <dialog ref={element} className="dialog" aria-labelledby={heading} onClose={onClose}>
      <h2 id={heading}>{title}</h2>
      {children}
    </dialog>
  );
}
