/** What the command finds in its environment. */

import type { Held } from "./held.ts";
import { ANCESTORS, REFERENCE, referencesIn } from "./nested.ts";

/**
 * Ours, with what is held and the store that it is held at (`url`: what --url said), without what would let the child act
 * in our name.
 */
export function childEnvironment(env: NodeJS.ProcessEnv, held: Held, store: string | undefined): NodeJS.ProcessEnv {
  const child: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(env)) if (!name.startsWith("HOLDFAST_CREDENTIAL")) child[name] = value;
  const url = store ?? env.HOLDFAST_URL;
  if (url !== undefined) child.HOLDFAST_URL = url.replace(/\/\/[^/@]*@/, "//");
  // a key has no line feed, so one a line is unambiguous
  child.HOLDFAST_KEY = held.keys.join("\n");
  if (held.token === null) delete child.HOLDFAST_TOKEN;
  else child.HOLDFAST_TOKEN = String(held.token);
  if (held.tokens === null) delete child.HOLDFAST_TOKENS;
  else child.HOLDFAST_TOKENS = held.tokens.join("\n");
  const outer = referencesIn(env).filter((reference) => reference !== held.reference);
  child[REFERENCE] = held.reference;
  if (outer.length === 0) delete child[ANCESTORS];
  else child[ANCESTORS] = outer.join(" ");
  return child;
}
