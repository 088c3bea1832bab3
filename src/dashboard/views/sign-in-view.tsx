/** Signs in: with the credential of an account, or by a link of `holdfast dashboard`. */

import { useEffect, useState } from "preact/hooks";
import { Banner } from "../components/banner.tsx";
import { Brand } from "../components/brand.tsx";
import { SignInForm } from "../components/sign-in-form.tsx";
import { hasAccounts, RequestError } from "../data/api.ts";

interface SignInViewProps {
  /** Why the link that was opened did not work; null: there was none. */
  readonly linkFailure: string | null;
}

const RETRY_MS = 2_000;

export function SignInView({ linkFailure }: SignInViewProps) {
  const [accounts, setAccounts] = useState<boolean | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | null = null;
    const ask = async (): Promise<void> => {
      try {
        setAccounts(await hasAccounts());
        setFailure(null);
      } catch (error) {
        if (error instanceof RequestError) setFailure(error.message);
        timer = setTimeout(() => void ask(), RETRY_MS);
      }
    };
    void ask();
    return () => {
      if (timer !== null) clearTimeout(timer);
    };
  }, []);
  return (
    <main class="sign-in">
      <div class="sign-in-box">
        <Brand />
        <h1>Sign in</h1>
        <div aria-live="polite">
          {linkFailure !== null && (
            <Banner tone="bad" title="The link does not work.">
              {linkFailure}
            </Banner>
          )}
          {failure !== null && (
            <Banner tone="bad" title="Disconnected:">
              {failure}
            </Banner>
          )}
        </div>
        {accounts === true && <SignInForm />}
        {accounts === false && <LinkHelp />}
        {accounts === null && failure === null && <p class="muted">Asking the gateway how to sign in.</p>}
      </div>
    </main>
  );
}

function LinkHelp() {
  return (
    <div class="prose">
      <p>
        You need a link of <code>holdfast dashboard</code>. It prints one in its terminal.
      </p>
      <ul>
        <li>A link works once, and for 60 s.</li>
        <li>Enter in that terminal prints a new one.</li>
      </ul>
    </div>
  );
}
