/** Where a driver gets its client from: the user's own, or one that the user's function creates. */

import type { SqlClient } from "./types.ts";

export interface ClientSource {
  readonly create: () => Promise<SqlClient>;
  /** The driver closes the client. */
  readonly isOwned: boolean;
  /** The user's own client; null: it is created later. */
  readonly existing: SqlClient | null;
}

/**
 * `client`: a client, which may be a function itself, or a function that creates one.
 * @throws TypeError if it is neither
 */
export function toClientSource(client: unknown, adapt: (client: unknown) => SqlClient): ClientSource {
  let existing: SqlClient;
  try {
    existing = adapt(client);
  } catch (error) {
    if (typeof client !== "function") throw error;
    return { create: async () => adapt(await client()), isOwned: true, existing: null };
  }
  return { create: () => Promise.resolve(existing), isOwned: false, existing };
}
