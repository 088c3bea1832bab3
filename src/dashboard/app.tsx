/** The pages: the view in the address, or the way to sign in. */

import { useEffect, useErrorBoundary, useRef, useState } from "preact/hooks";
import type { Overview } from "../gateway/dashboard/view-types.ts";
import { EmptyState } from "./components/empty-state.tsx";
import { HelpDialog } from "./components/help-dialog.tsx";
import { PageHead, VIEWS } from "./components/page-head.tsx";
import { openRoute, useRoute } from "./data/navigation.ts";
import { sessionSecret, sessionState } from "./data/session.ts";
import { useShortcuts } from "./data/shortcuts.ts";
import { linkFailure } from "./data/start-link.ts";
import { usePolled } from "./data/use-polled.ts";
import { useStored } from "./data/value-store.ts";
import type { Route } from "./model/routes.ts";
import { makeVisible } from "./model/visible-text.ts";
import { EventsView } from "./views/events-view.tsx";
import { HoldersView } from "./views/holders-view.tsx";
import { KeyView } from "./views/key-view.tsx";
import { KeysView } from "./views/keys-view.tsx";
import { NowView } from "./views/now-view.tsx";
import { SignInView } from "./views/sign-in-view.tsx";
import { StoreView } from "./views/store-view.tsx";

/** The rights of an account may change. */
const OVERVIEW_INTERVAL_MS = 30_000;

export function App() {
  const [fault] = useErrorBoundary((error: unknown) => console.error(error));
  const session = useStored(sessionState);
  const secret = useStored(sessionSecret);
  const failure = useStored(linkFailure);
  if (fault !== undefined) return <Fault />;
  if (session === "signedOut" || secret === null) return <SignInView linkFailure={failure} />;
  // another session may be that of another account: it begins with nothing
  return <Pages key={secret} />;
}

function Fault() {
  return (
    <main>
      <h1 class="visually-hidden">Fault</h1>
      <EmptyState title="This page has failed" tone="refused">
        The console of the browser has the error.
        <button type="button" class="button" onClick={() => location.reload()}>
          Load it again
        </button>
      </EmptyState>
    </main>
  );
}

function Pages() {
  const route = useRoute();
  const { value: overview } = usePolled<Overview>("/overview", OVERVIEW_INTERVAL_MS);
  const [isHelpShown, setHelpShown] = useState(false);
  useShortcuts({
    "?": () => setHelpShown(true),
    ...Object.fromEntries(VIEWS.map(({ shortcut, route: target }) => [`g ${shortcut}`, () => openRoute(target)])),
  });
  const place = route.view === "key" ? `key ${route.key}` : route.view;
  const placeBefore = useRef(place);
  // a reader of the screen continues with the contents of the view that was opened
  useEffect(() => {
    if (placeBefore.current !== place) document.getElementById("content")?.focus({ preventScroll: true });
    placeBefore.current = place;
  }, [place]);
  useEffect(() => {
    document.title = `${nameRoute(route)} — Holdfast`;
  }, [route]);
  return (
    <>
      <a href="#content" class="skip">
        Skip to the contents
      </a>
      <PageHead view={route.view} overview={overview} onHelp={() => setHelpShown(true)} />
      <main id="content" tabIndex={-1}>
        <View route={route} overview={overview} />
      </main>
      {isHelpShown && <HelpDialog onClose={() => setHelpShown(false)} />}
    </>
  );
}

interface ViewProps {
  readonly route: Route;
  readonly overview: Overview | null;
}

function View({ route, overview }: ViewProps) {
  switch (route.view) {
    case "keys":
      return <KeysView query={route.query} overview={overview} />;
    case "key":
      return <KeyView key={route.key} keyName={route.key} overview={overview} />;
    case "holders":
      return <HoldersView search={route.search} overview={overview} />;
    case "events":
      return <EventsView search={route.search} />;
    case "now":
      return <NowView />;
    case "store":
      return <StoreView overview={overview} />;
    default:
      return (
        <>
          <h1 class="visually-hidden">No such page</h1>
          <EmptyState title="There is no such page">The views are in the head of this page.</EmptyState>
        </>
      );
  }
}

function nameRoute(route: Route): string {
  if (route.view === "key") return makeVisible(route.key);
  return VIEWS.find((view) => view.route.view === route.view)?.title ?? "No such page";
}
