// Asks for an API key where the server requires one.
import { useState } from "react";

import { clientOf, dataOf } from "../api/client";
import { useConnection } from "../connection";
import { ErrorMessage } from "./ErrorMessage";

export function Login() {
  const { connection, update } = useConnection();
  const [key, setKey] = useState("");
  const [error, setError] = useState<unknown>(null);
  const login = async () => {
    setError(null);
    try {
      await dataOf(clientOf({ ...connection, key: key.trim() }).GET("/auth/whoami"));
      update({ key: key.trim() });
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <form
      className="card login"
      onSubmit={(event) => {
        event.preventDefault();
        void login();
      }}
    >
      <h1>Log in</h1>
      <p>This server requires an API key. It stays in this browser tab and is forgotten when the tab closes.</p>
      <label>
        API key
        <input type="password" value={key} onChange={(event) => setKey(event.target.value)} autoComplete="off" autoFocus />
      </label>
      <p className="toolbar"><button type="submit" className="primary" disabled={key.trim() === ""}>Log in</button></p>
      {error !== null && <ErrorMessage error={error} />}
    </form>
  );
}
