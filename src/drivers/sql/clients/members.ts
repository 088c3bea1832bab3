/** What tells the libraries of clients apart. */

/** The members of a client, those of its prototypes included. */
export type Members = Readonly<Record<string, unknown>>;

/** Empty for what is no object. */
export function readMembers(value: unknown): Members {
  // postgres.js and Knex are functions
  return Object(value) as Members;
}

export function hasMethods(members: Members, ...names: readonly string[]): boolean {
  return names.every((name) => typeof members[name] === "function");
}
