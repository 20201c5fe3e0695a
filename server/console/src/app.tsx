// The frame of the console: the bar with what is shown, the navigation, and the screen of the address.
import { useIsFetching } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState, type ComponentType } from "react";
import { Link, Route, Switch, useLocation, useSearchParams } from "wouter";

import { linkTo } from "./address";
import { useAuthStatus, usePredicateQuery } from "./api/queries";
import { ConnectionBar, KeyMenu, Notices } from "./components/ConnectionBar";
import { ErrorBoundary } from "./components/ErrorBoundary";
import { Icon } from "./components/Icon";
import { Login } from "./components/Login";
import { useConnection } from "./connection";
import { useDensity } from "./density";
import { partOf, SCREENS } from "./screens";

const Tour = lazy(() => import("./components/Tour"));
const Palette = lazy(() => import("./components/Palette"));

const COMPONENTS: Record<string, ComponentType> = {
  memory: lazy(() => import("./screens/Memory")),
  window: lazy(() => import("./screens/Window")),
  playground: lazy(() => import("./screens/Playground")),
  facts: lazy(() => import("./screens/Facts")),
  rulesets: lazy(() => import("./screens/RuleSets")),
  graph: lazy(() => import("./screens/Graph")),
  scopes: lazy(() => import("./screens/Scopes")),
  operations: lazy(() => import("./screens/Operations")),
  start: lazy(() => import("./screens/Start")),
};

export function App() {
  const [location] = useLocation();
  const [search] = useSearchParams();
  const { connection } = useConnection();
  const status = useAuthStatus();
  const current = partOf(location, search);
  const title = current?.part.title ?? "Console";
  useEffect(() => {
    document.title = `${title} · kbcore`;
    // On a narrow page the navigation scrolls sideways.
    document.querySelector('.screens [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [title]);
  const fetching = useIsFetching();
  const needsKey = status.data !== undefined && status.data.mode !== "disabled" && connection.key === null;
  return (
    <>
      <a className="skip" href="#main">To the content</a>
      <header className="topbar">
        <Link className="brand" href={linkTo("memory", search)} aria-label="kbcore: memory"><img src="./icon.svg" alt="" width="24" height="24" /> kbcore</Link>
        <ConnectionBar />
        <span className="end">
          <FindButton />
          <KeyMenu />
          <DensityButton />
          <ThemeButton />
        </span>
      </header>
      <div className="frame">
        <nav className="screens" aria-label="Screens">
          {SCREENS.map(({ title: name, icon, parts: [first] }) => (
            <Link key={name} href={linkTo(first.screen, search)} aria-current={current?.group.title === name ? "page" : undefined}><Icon name={icon} />{name}</Link>
          ))}
        </nav>
        <main id="main" tabIndex={-1} data-fetching={fetching}>
          <ErrorBoundary key={location}>
            {needsKey ? (
              <Login />
            ) : (
              <Suspense fallback={<p role="status">Loading …</p>}>
                {current !== null && <Notices screenTimes={current.part.times} screen={title} />}
                {search.has("tour") && <Tour key={search.get("tour")} />}
                <Switch>
                  {Object.entries(COMPONENTS).map(([path, component]) => (
                    <Route key={path} path={`/${path}`} component={component} />
                  ))}
                  <Route path="/"><FirstScreen /></Route>
                  <Route><h1>No such screen</h1><p>The address names none of the screens.</p></Route>
                </Switch>
              </Suspense>
            )}
          </ErrorBoundary>
        </main>
      </div>
    </>
  );
}

/** The button of the command palette; Ctrl+K (Cmd+K on a Mac) opens it as well. */
function FindButton() {
  const [isOpen, setIsOpen] = useState(false);
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      setIsOpen(true);
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  return (
    <>
      <button type="button" className="find" title="Go to a screen, predicate, constant or goal" aria-keyshortcuts="Control+K" onClick={() => setIsOpen(true)}>
        <Icon name="search" /><span className="words">Go to</span> <kbd>Ctrl K</kbd>
      </button>
      {isOpen && <Suspense fallback={null}><Palette onClose={() => setIsOpen(false)} /></Suspense>}
    </>
  );
}

function FirstScreen() {
  const [, navigate] = useLocation();
  const [search] = useSearchParams();
  const { data, isError } = usePredicateQuery();
  const isEmpty = data?.predicates.length === 0;
  const isKnown = data !== undefined || isError;
  useEffect(() => {
    if (isKnown) navigate(linkTo(isEmpty ? "start" : "memory", search), { replace: true });
  }, [isKnown, isEmpty, navigate, search]);
  return <p role="status">Loading …</p>;
}

function DensityButton() {
  const [isDense, toggle] = useDensity();
  return <button type="button" className={isDense ? "plain set" : "plain"} aria-pressed={isDense} aria-label="Dense tables" title="Dense tables" onClick={toggle}><Icon name="density" /></button>;
}

function ThemeButton() {
  const [theme, setTheme] = useState(() => localStorage.getItem("kbcore.theme"));
  useEffect(() => {
    if (theme === null) delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  const dark = theme === "dark" || (theme === null && matchMedia("(prefers-color-scheme: dark)").matches);
  const change = () => {
    const next = dark ? "light" : "dark";
    localStorage.setItem("kbcore.theme", next);
    setTheme(next);
  };
  return <button type="button" className="plain" aria-label={dark ? "Light colours" : "Dark colours"} title={dark ? "Light colours" : "Dark colours"} onClick={change}><Icon name={dark ? "light" : "dark"} /></button>;
}
