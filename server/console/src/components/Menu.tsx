// A button that opens a panel below it: Escape and a click elsewhere close it.
import { useEffect, useRef, useState, type ReactNode } from "react";

import { Icon, type IconName } from "./Icon";

interface Properties {
  /** What is chosen, such as "Tenant". */
  label: string;
  value: string;
  icon?: IconName;
  /** The value differs from the usual one. */
  isSet?: boolean;
  children: (close: () => void) => ReactNode;
}

export function Menu({ label, value, icon, isSet = false, children }: Properties) {
  const [isOpen, setIsOpen] = useState(false);
  const element = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const closeOutside = (event: Event) => {
      if (event.target instanceof Node && element.current?.contains(event.target) === false) setIsOpen(false);
    };
    document.addEventListener("pointerdown", closeOutside);
    document.addEventListener("focusin", closeOutside);
    return () => {
      document.removeEventListener("pointerdown", closeOutside);
      document.removeEventListener("focusin", closeOutside);
    };
  }, [isOpen]);
  const close = () => {
    setIsOpen(false);
    button.current?.focus();
  };
  return (
    <div
      className="menu"
      ref={element}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !isOpen) return;
        event.stopPropagation();
        close();
      }}
    >
      <button ref={button} type="button" className={isSet ? "plain set" : "plain"} aria-haspopup="dialog" aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
        {icon !== undefined && <Icon name={icon} />}
        <span className={icon === undefined ? "kind-of" : "hidden"}>{label}</span> <strong>{value}</strong>
      </button>
      {isOpen && <div className="popover" role="dialog" aria-label={label}>{children(close)}</div>}
    </div>
  );
}
