/** The type of the defaults of options: one for each option, undefined for an option without a value. */
export type Defaults<Options> = { readonly [Name in keyof Options]-?: Options[Name] | undefined };

/** The options with their defaults. An option that is undefined has its default, too. */
export function withDefaults<Options extends object>(defaults: Defaults<Options>, given: Options): Defaults<Options> {
    return Object.assign({}, defaults, defined(given)) as Defaults<Options>;
}

/** The members that are not undefined. */
export function defined<Options extends object>(options: Options): Partial<Options> {
    return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<Options>;
}
