/** The form for the credential of an account. */

import { useState } from "preact/hooks";
import { RequestError, signIn } from "../data/api.ts";

export function SignInForm() {
  const [credential, setCredential] = useState("");
  const [isSending, setSending] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);

  const send = async (): Promise<void> => {
    const trimmed = credential.trim();
    if (trimmed === "" || isSending) return;
    setSending(true);
    setFailure(null);
    try {
      await signIn({ credential: trimmed });
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      setFailure(describeFailure(error));
      setSending(false);
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <label class="stacked">
        <span>Credential of your account</span>
        <input
          type="password"
          value={credential}
          required
          autocomplete="current-password"
          aria-describedby="sign-in-hint"
          onInput={(event) => setCredential(event.currentTarget.value)}
        />
      </label>
      <p id="sign-in-hint" class="caption">
        As <code>holdfast credential new</code> printed it.
      </p>
      <p class="failure" role="alert">
        {failure ?? ""}
      </p>
      <button type="submit" class="button button-primary" disabled={credential.trim() === "" || isSending}>
        {isSending ? "Signing in" : "Sign in"}
      </button>
    </form>
  );
}

const FAILURES: Readonly<Record<number, string>> = {
  401: "The gateway does not know this credential. Compare it with what holdfast credential new printed.",
  403: "This account may not use the dashboard: it needs the right to inspect.",
  429: "There were too many attempts. Try again in a minute.",
};

function describeFailure({ status, kind, message }: RequestError): string {
  return kind === "unreachable" ? "The gateway cannot be reached. Try again." : (FAILURES[status] ?? message);
}
