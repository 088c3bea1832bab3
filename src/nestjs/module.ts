/** The module of NestJS. A dynamic module is a plain object, so nothing of NestJS is imported. */

import type { ConnectOptions, Locks } from "../index.ts";
import { connect } from "../index.ts";
import { functionRule, locksRule, requireObject, requireValid } from "../util/validate.ts";
import { importScheduledJobs } from "./scheduled-jobs.ts";
import { HoldfastLocks } from "./token.ts";

/** Which locks the module provides: those of connect(url, options), or existing ones. */
export interface HoldfastModuleOptions extends ConnectOptions {
  /** As the first argument of connect(). Default: HOLDFAST_URL, else the per-user lock server of this machine. */
  readonly url?: string | undefined;
  /** Existing locks, instead of url and options. The module closes them when the application shuts down. */
  readonly locks?: Locks | undefined;
}

/** Options that other providers give. */
export interface HoldfastModuleAsyncOptions {
  /** Modules that export what `inject` names. */
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  readonly imports?: any[] | undefined;
  /** The tokens of the arguments of `useFactory`. */
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  readonly inject?: any[] | undefined;
  /** Returns the options, or a promise of them. */
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  readonly useFactory: (...args: any[]) => HoldfastModuleOptions | Promise<HoldfastModuleOptions>;
}

/** A dynamic module of NestJS. */
interface DynamicModuleLike {
  readonly module: typeof HoldfastModule;
  global: true;
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  imports: any[];
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  providers: any[];
  // biome-ignore lint/suspicious/noExplicitAny: as in NestJS
  exports: any[];
}

const OPTIONS = Symbol("holdfast.options");
const SHUTDOWN = Symbol("holdfast.shutdown");

/** Provides HoldfastLocks to all modules. When the application shuts down, closes them, which releases every lock. */
// biome-ignore lint/complexity/noStaticOnlyClass: NestJS knows a module by its class
export class HoldfastModule {
  /** @throws TypeError naming the option, here or, for options of connect(), when the application starts */
  static forRoot(options: HoldfastModuleOptions = {}): DynamicModuleLike {
    requireModuleOptions(options, "forRoot");
    return createModule({ provide: OPTIONS, useValue: options });
  }

  /** @throws TypeError naming the option */
  static forRootAsync(options: HoldfastModuleAsyncOptions): DynamicModuleLike {
    requireObject(options, "forRootAsync");
    const { useFactory, inject = [], imports = [] } = options;
    requireValid(useFactory, "useFactory", functionRule);
    requireValid(inject, "inject", arrayRule);
    requireValid(imports, "imports", arrayRule);
    return createModule({ provide: OPTIONS, useFactory, inject }, imports);
  }
}

function createModule(optionsProvider: object, imports: object[] = []): DynamicModuleLike {
  const locksProvider = { provide: HoldfastLocks, useFactory: openLocks, inject: [OPTIONS] };
  // the HTTP server has been closed by then, so that no request loses its lock
  const createShutdownHook = (locks: Locks): object => ({ onApplicationShutdown: () => locks.close() });
  const shutdownProvider = { provide: SHUTDOWN, useFactory: createShutdownHook, inject: [HoldfastLocks] };
  return {
    module: HoldfastModule,
    global: true,
    imports: [...imports, importScheduledJobs()],
    providers: [optionsProvider, locksProvider, shutdownProvider],
    exports: [HoldfastLocks],
  };
}

async function openLocks(options: HoldfastModuleOptions): Promise<Locks> {
  requireModuleOptions(options, "useFactory");
  const { url, locks, ...connectOptions } = options;
  return locks ?? connect(url, connectOptions);
}

function requireModuleOptions(options: HoldfastModuleOptions, subject: string): void {
  requireObject(options, subject);
  const { locks, ...others } = options;
  if (locks === undefined) return;
  requireValid(locks, "locks", locksRule);
  const [other] = Object.entries(others).find(([, value]) => value !== undefined) ?? [];
  if (other !== undefined) throw new TypeError(`${other} must not be set beside locks, which have their own options`);
}

const arrayRule = (value: unknown): string | null => (Array.isArray(value) ? null : "an array");
