// A conversation beside the facts that are believed from each message: a fact and its passage lead to each other.
import { lazy, Suspense, useState } from "react";
import { Link, useSearchParams } from "wouter";

import { linkTo, useAddressParts } from "../../address";
import { useMayWrite, useWhoAmI } from "../../api/queries";
import { ErrorMessage } from "../../components/ErrorMessage";
import { atomText } from "../../language/atom";
import { dayText } from "../../time";
import { FactActions } from "./FactActions";
import { FactText } from "./FactText";
import { segmentsOf } from "./passages";
import { PAGE_SIZE, useEpisodeFacts, useEpisodes, type Episode, type Row } from "./requests";

/** A fact of a message: the same fact may be based on several messages. */
interface Selected {
  episode: string;
  fact: string;
}

const PurgeDialog = lazy(() => import("./PurgeDialog"));

export function Conversation() {
  const isAdmin = useWhoAmI().data?.role === "admin";
  const mayPurge = useMayWrite() && isAdmin;
  const [isPurging, setPurging] = useState(false);
  const [search, change] = useAddressParts();
  const filter = { session: search.get("session") ?? "", speaker: search.get("speaker") ?? "" };
  const page = search.get("page");
  const query = useEpisodes(filter, page === null ? null : Math.max(1, Number.parseInt(page, 10) || 1));
  const episodes = query.data?.episodes ?? [];
  const { messages, error } = useEpisodeFacts(episodes.map(({ id }) => id));
  const [selected, setSelected] = useState<Selected | null>(null);
  const [message, setMessage] = useState<string | null>(null);
  const isFiltered = filter.session !== "" || filter.speaker !== "";
  if (query.error !== null) return <ErrorMessage error={query.error} />;
  if (query.data === undefined) return <p role="status">Loading …</p>;
  const { total } = query.data;
  if (total === 0 && !isFiltered) return <NoMessages />;
  const show = (next: number) => change({ page: String(next) }, { replace: false });
  const pages = Math.max(1, Math.ceil(total / PAGE_SIZE));
  return (
    <>
      <div className="toolbar" role="search" aria-label="Filter messages">
        <FilterField name="session" label="Session" value={filter.session} known={episodes.map(({ session }) => session ?? "")} />
        <FilterField name="speaker" label="Speaker" value={filter.speaker} known={episodes.map(({ speaker }) => speaker)} />
        <span role="status">{message ?? `${total.toLocaleString("en")} ${total === 1 ? "message" : "messages"}`}</span>
        <span className="exports">
          {pages > 1 && (
            <>
              <button type="button" onClick={() => show(query.data.page - 1)} disabled={query.data.page === 1}>Older</button>
              <span>page {query.data.page} of {pages}</span>
              <button type="button" onClick={() => show(query.data.page + 1)} disabled={query.data.page >= pages}>Newer</button>
            </>
          )}
          {mayPurge && <button type="button" className="danger" onClick={() => setPurging(true)}>Purge …</button>}
        </span>
      </div>
      {error !== null && <ErrorMessage error={error} />}
      <div className="talk-head soft" aria-hidden="true"><span>What was said</span><span>What is believed from it</span></div>
      <ol className="talk" aria-label="Conversation">
        {episodes.map((episode, index) => (
          <Message
            key={episode.id}
            episode={episode}
            heading={headingOf(episode, episodes[index - 1])}
            facts={(messages.get(episode.id)?.facts ?? []).filter((fact) => !isMessage(fact))}
            selected={selected?.episode === episode.id ? selected.fact : null}
            onSelect={(fact) => setSelected(fact === null ? null : { episode: episode.id, fact })}
            onMessage={setMessage}
          />
        ))}
      </ol>
      {episodes.length === 0 && <p className="soft">No message matches.</p>}
      {isPurging && (
        <Suspense fallback={null}>
          <PurgeDialog
            onClose={(done) => {
              setPurging(false);
              if (done !== null) setMessage(done);
            }}
          />
        </Suspense>
      )}
    </>
  );
}

interface MessageProperties {
  episode: Episode;
  heading: string | null;
  facts: readonly Row[];
  selected: string | null;
  onSelect: (fact: string | null) => void;
  onMessage: (message: string) => void;
}

function Message({ episode, heading, facts, selected, onSelect, onMessage }: MessageProperties) {
  const passages = facts.flatMap((fact) =>
    (fact.evidence ?? []).filter((span) => span.episode === episode.id).map(({ start, end }) => ({ fact: atomText(fact), start: start ?? 0, end: end ?? episode.text.length })),
  );
  const isAgent = ["assistant", "agent", "system"].includes(episode.speaker);
  const current = facts.find((fact) => atomText(fact) === selected);
  return (
    <li>
      {heading !== null && <h2 className="session">{heading}</h2>}
      <div className="turn">
        <div className={isAgent ? "said agent" : "said"}>
          <p className="who"><strong>{episode.speaker}</strong> <time className="soft" dateTime={new Date(episode.at).toISOString()}>{new Date(episode.at).toISOString().slice(11, 16)}</time></p>
          <p className="words">
            {segmentsOf(episode.text, passages).map(({ text, facts: names }, index) => {
              const [first] = names;
              if (first === undefined) return <span key={index}>{text}</span>;
              const isOn = selected !== null && names.includes(selected);
              return <button key={index} type="button" className={isOn ? "passage on" : "passage"} aria-pressed={isOn} title={names.join(", ")} onClick={() => onSelect(isOn ? null : first)}>{text}</button>;
            })}
          </p>
        </div>
        <ul className="believed" aria-label={`Believed from “${episode.text}”`}>
          {facts.map((fact) => {
            const name = atomText(fact);
            return (
              <li key={name}>
                <button type="button" className={name === selected ? "fact on" : "fact"} aria-expanded={name === selected} onClick={() => onSelect(name === selected ? null : name)}>
                  <FactText fact={fact} />
                  <FactState fact={fact} />
                </button>
              </li>
            );
          })}
        </ul>
      </div>
      {current !== undefined && <FactActions fact={current} onMessage={onMessage} />}
    </li>
  );
}

/** What happened to a fact since: it ended, or it corrects another one. */
function FactState({ fact }: { fact: Row }) {
  const corrected = (fact.metadata as { corrects?: { fact?: string } }).corrects?.fact;
  return (
    <>
      {fact.validUntil !== null && fact.validUntil <= Date.now() && <span className="kind ended">until {dayText(fact.validUntil)}</span>}
      {corrected !== undefined && <span className="kind">corrected: was {corrected}</span>}
    </>
  );
}

function FilterField({ name, label, value, known }: { name: string; label: string; value: string; known: readonly string[] }) {
  const [, change] = useAddressParts();
  const names = [...new Set([value, ...known])].filter((each) => each !== "").sort();
  return (
    <label className="inline">
      {label}
      <select value={value} onChange={(event) => change({ [name]: event.target.value, page: null })}>
        <option value="">all</option>
        {names.map((each) => <option key={each}>{each}</option>)}
      </select>
    </label>
  );
}

function NoMessages() {
  const [search] = useSearchParams();
  const mayWrite = useMayWrite();
  return (
    <section className="card teach">
      <h2>No conversation yet</h2>
      <p>Give the memory the messages of a user, and this screen shows them beside the facts that are believed from each. In Python:</p>
      <pre tabIndex={0} aria-label="Python">{`memory = kb.memory(user="mia")\nmemory.add([{"role": "user", "content": "I moved to Berlin."}], session="s1")`}</pre>
      <p>Facts alone are on the screen <Link href={linkTo("facts", search)}>Facts</Link>{mayWrite && <>; examples to begin with are under <Link href={linkTo("start", search)}>Examples</Link></>}.</p>
    </section>
  );
}

/** Return the heading above a message: the session and the day, where either changes. */
function headingOf(episode: Episode, before: Episode | undefined): string | null {
  const day = dayText(episode.at);
  if (before !== undefined && before.session === episode.session && dayText(before.at) === day) return null;
  return episode.session === null ? day : `${day} · session ${episode.session}`;
}

/** Return true for the fact that a message was said. */
function isMessage({ predicate, metadata }: Row): boolean {
  return predicate === "said" && (metadata as { episode?: boolean }).episode === true;
}
