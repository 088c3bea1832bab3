/** In a Cluster calls for many claims go bucket by bucket: those of one turn together, whoever asked. */

/** When some buckets have answered and others not, how long these are waited for, in milliseconds. */
const GRACE_MS = 1_000;

interface Item<T, R> {
  readonly of: T;
  readonly settle: (answer: R | undefined, error?: unknown) => void;
}

export class Spread<T, R> {
  readonly #routeOf: (item: T) => string;
  readonly #call: (items: readonly T[]) => Promise<readonly R[]>;
  #gathered = new Map<string, Item<T, R>[]>();

  /** @param call asks for items of one bucket */
  constructor(routeOf: (item: T) => string, call: (items: readonly T[]) => Promise<readonly R[]>) {
    this.#routeOf = routeOf;
    this.#call = call;
  }

  /**
   * The answers in the order of the items. What no answer came for, because its bucket's node is in trouble, is left out
   * (undefined): the others must not suffer for it. @throws why, if none came
   */
  all(items: readonly T[]): Promise<readonly (R | undefined)[]> {
    if (items.length === 0) return Promise.resolve([]);
    return new Promise((resolve, reject) => {
      const answers: (R | undefined)[] = Array.from(items, () => undefined);
      let left = items.length;
      let answered = 0;
      let late: NodeJS.Timeout | undefined;
      let failure: unknown;
      const finish = (): void => {
        clearTimeout(late);
        if (answered > 0) resolve(answers);
        else reject(failure);
      };
      for (const [at, of] of items.entries()) {
        this.#gather(of, (answer, error) => {
          answers[at] = answer;
          left--;
          if (answer === undefined) failure = error;
          else answered++;
          if (left === 0) finish();
          else if (answered > 0) late ??= setTimeout(finish, GRACE_MS);
        });
      }
    });
  }

  #gather(of: T, settle: Item<T, R>["settle"]): void {
    if (this.#gathered.size === 0) queueMicrotask(() => this.#send());
    const route = this.#routeOf(of);
    const there = this.#gathered.get(route);
    if (there === undefined) this.#gathered.set(route, [{ of, settle }]);
    else there.push({ of, settle });
  }

  #send(): void {
    const gathered = this.#gathered;
    this.#gathered = new Map();
    for (const items of gathered.values()) {
      this.#call(items.map(({ of }) => of)).then(
        (answers) => {
          for (const [at, { settle }] of items.entries()) settle(answers[at]);
        },
        (error: unknown) => {
          for (const { settle } of items) settle(undefined, error);
        },
      );
    }
  }
}
