/** The pages of the dashboard. */

import { render } from "preact";
import { App } from "./app.tsx";
import { startClock } from "./data/clock.ts";
import { startNavigation } from "./data/navigation.ts";
import { startSession } from "./data/session.ts";
import { followStartLink } from "./data/start-link.ts";
import { startTheme } from "./data/theme.ts";

/** The element of index.html that contains the pages. */
const ROOT = "app";

async function start(): Promise<void> {
  // before anything else: the token must not stay in the address
  const following = followStartLink();
  startTheme();
  startSession();
  startClock();
  startNavigation();
  addEventListener("hashchange", () => void followStartLink());
  await following;
  const root = document.getElementById(ROOT);
  if (root === null) throw new Error(`index.html has no element "${ROOT}"`);
  render(<App />, root);
}

void start();
