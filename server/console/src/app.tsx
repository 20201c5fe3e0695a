// The frame of the console: navigation, connection, and the screen of the address.
import { useIsFetching } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState, type ComponentType } from "react";
import { Link, Route, Switch, useLocation, useSearchParams } from "wouter";

import { linkTo } from "./address";
import { ConnectionBar } from "./components/ConnectionBar";
import { ErrorBoundary } from "./components/ErrorBoundary";
import { Login } from "./components/Login";
import { useAuthStatus, usePredicateQuery } from "./api/queries";
import { useConnection } from "./connection";

interface Screen {
  path: string;
  title: string;
  component: ComponentType;
}

const Tour = lazy(() => import("./components/Tour"));

const SCREENS: Screen[] = [
  { path: "playground", title: "Playground", component: lazy(() => import("./screens/Playground")) },
  { path: "window", title: "Window composer", component: lazy(() => import("./screens/Window")) },
  { path: "facts", title: "Facts and rules", component: lazy(() => import("./screens/Facts")) },
  { path: "rulesets", title: "Rule sets", component: lazy(() => import("./screens/RuleSets")) },
  { path: "graph", title: "Graph", component: lazy(() => import("./screens/Graph")) },
  { path: "operations", title: "Operations", component: lazy(() => import("./screens/Operations")) },
  { path: "scopes", title: "Scopes", component: lazy(() => import("./screens/Scopes")) },
  { path: "start", title: "Start", component: lazy(() => import("./screens/Start")) },
];

export function App() {
  const [location] = useLocation();
  const [search] = useSearchParams();
  const { connection } = useConnection();
  const status = useAuthStatus();
  const current = SCREENS.find((screen) => location === `/${screen.path}`);
  useEffect(() => {
    document.title = `${current?.title ?? "Console"} · kbcore`;
    // On a narrow page the navigation scrolls sideways.
    document.querySelector('nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  const fetching = useIsFetching();
  const needsKey = status.data !== undefined && status.data.mode !== "disabled" && connection.key === null;
  return (
    <>
      <a className="skip" href="#main">To the content</a>
      <header>
        <span className="brand"><img src="./icon.svg" alt="" width="24" height="24" /> kbcore</span>
        <nav aria-label="Screens">
          {SCREENS.map(({ path, title }) => (
            <Link key={path} href={linkTo(path, search)} aria-current={current?.path === path ? "page" : undefined}>{title}</Link>
          ))}
        </nav>
        <ThemeButton />
      </header>
      <ConnectionBar />
      <main id="main" tabIndex={-1} data-fetching={fetching}>
        <ErrorBoundary key={location}>
          {needsKey ? (
            <Login />
          ) : (
            <Suspense fallback={<p role="status">Loading …</p>}>
              {search.has("tour") && <Tour key={search.get("tour")} />}
              <Switch>
                {SCREENS.map(({ path, component }) => (
                  <Route key={path} path={`/${path}`} component={component} />
                ))}
                <Route path="/"><FirstScreen /></Route>
                <Route><h1>No such screen</h1><p>The address names none of the screens above.</p></Route>
              </Switch>
            </Suspense>
          )}
        </ErrorBoundary>
      </main>
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
    if (isKnown) navigate(linkTo(isEmpty ? "start" : "playground", search), { replace: true });
  }, [isKnown, isEmpty, navigate, search]);
  return <p role="status">Loading …</p>;
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
  return <button type="button" className="theme" onClick={change}>{dark ? "Light" : "Dark"}</button>;
}
