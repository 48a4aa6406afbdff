/** The type of the defaults of options: one for each option, undefined for an option without a value. */
export type Defaults<Options> = { readonly [Name in keyof Options]-?: Options[Name] | undefined };
