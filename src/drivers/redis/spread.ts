/** In a Cluster calls for many claims go bucket by bucket: those of one turn together, whoever asked. */

interface Item<T, R> {
  readonly of: T;
  readonly resolve: (answer: R) => void;
  readonly reject: (error: unknown) => void;
}

export class Spread<T, R> {
  readonly #routeOf: (item: T) => string;
  readonly #call: (items: readonly T[]) => Promise<readonly R[]>;
  #gathered = new Map<string, Item<T, R>[]>();

  /** @param call asks for items of one bucket, and answers for every one */
  constructor(routeOf: (item: T) => string, call: (items: readonly T[]) => Promise<readonly R[]>) {
    this.#routeOf = routeOf;
    this.#call = call;
  }

  ask(item: T): Promise<R> {
    return new Promise((resolve, reject) => {
      if (this.#gathered.size === 0) queueMicrotask(() => this.#send());
      const route = this.#routeOf(item);
      const one = { of: item, resolve, reject };
      const there = this.#gathered.get(route);
      if (there === undefined) this.#gathered.set(route, [one]);
      else there.push(one);
    });
  }

  #send(): void {
    const gathered = this.#gathered;
    this.#gathered = new Map();
    for (const items of gathered.values()) {
      this.#call(items.map(({ of }) => of)).then(
        (answers) => {
          for (const [at, { resolve }] of items.entries()) resolve(answers[at] as R);
        },
        (error: unknown) => {
          for (const { reject } of items) reject(error);
        },
      );
    }
  }
}
