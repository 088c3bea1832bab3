/** The head of each page: the store, the views, and what is for the whole page. */

import type { Overview } from "../../gateway/dashboard/view-types.ts";
import { signOut } from "../data/api.ts";
import type { Route, ViewName } from "../model/routes.ts";
import { DEFAULT_QUERY } from "../model/routes.ts";
import { Brand } from "./brand.tsx";
import { Icon } from "./icons.tsx";
import { Link } from "./link.tsx";
import { ShortText } from "./safe-text.tsx";
import { ThemeButton } from "./theme-button.tsx";

interface PageHeadProps {
  readonly view: ViewName;
  readonly overview: Overview | null;
  readonly onHelp: () => void;
}

/** The views, in their order, by the key that follows "g". */
export const VIEWS: readonly { readonly shortcut: string; readonly title: string; readonly route: Route }[] = [
  { shortcut: "k", title: "Keys", route: { view: "keys", query: DEFAULT_QUERY } },
  { shortcut: "h", title: "Holders", route: { view: "holders", search: "" } },
  { shortcut: "e", title: "Events", route: { view: "events", search: "" } },
  { shortcut: "n", title: "Now", route: { view: "now" } },
  { shortcut: "s", title: "Store", route: { view: "store" } },
];

export function PageHead({ view, overview, onHelp }: PageHeadProps) {
  const shown = view === "key" ? "keys" : view;
  return (
    <header class="page-head">
      <div class="page-brand">
        <Brand />
        {overview !== null && <ShortText text={overview.store} isCode />}
        {overview !== null && !overview.canRevoke && (
          <span class="count-badge" title={overview.revokeRefusal ?? undefined}>
            read-only
          </span>
        )}
      </div>
      <nav aria-label="Views">
        {VIEWS.map(({ title, route }) => (
          <Link key={title} to={route} isCurrent={route.view === shown}>
            {title}
          </Link>
        ))}
      </nav>
      <div class="page-tools">
        {overview !== null && overview.account !== "" && <ShortText text={overview.account} />}
        <ThemeButton />
        <button type="button" class="icon-button" title="Keyboard (?)" aria-label="Keyboard" onClick={onHelp}>
          <Icon name="keyboard" />
        </button>
        <button type="button" class="icon-button" title="Sign out" aria-label="Sign out" onClick={() => void leave()}>
          <Icon name="leave" />
        </button>
      </div>
    </header>
  );
}

/** A gateway that cannot be reached keeps the session: the banner of the view says that it is away. */
async function leave(): Promise<void> {
  await signOut().catch(() => undefined);
}
