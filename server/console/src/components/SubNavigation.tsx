// The parts of a screen as links, such as conversations and timeline of the memory.
import { Link, useLocation, useSearchParams } from "wouter";

import { linkTo } from "../address";
import { partOf } from "../screens";

export function SubNavigation() {
  const [location] = useLocation();
  const [search] = useSearchParams();
  const current = partOf(location, search);
  if (current === null || current.group.parts.length < 2) return null;
  return (
    <nav className="subnav" aria-label={`Parts of ${current.group.title}`}>
      {current.group.parts.map((part) => (
        <Link key={part.title} href={linkTo(part.screen, search, part.parameters)} aria-current={part === current.part ? "page" : undefined}>{part.title}</Link>
      ))}
    </nav>
  );
}
