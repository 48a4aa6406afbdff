package example.deltaq;

import java.util.List;

/**
 * The webhooks of a vendor that a queue takes as changes.
 *
 * @param scheme standard, github, stripe, shopify, slack, gitlab or hmac
 * @param secrets the names of the secrets of which one has signed a delivery
 * @param signature where the signature is, with the scheme hmac
 * @param object the JSON pointer to the stored object
 * @param id header:NAME or a JSON pointer
 * @param only conditions of deliveries that are applied
 * @param deleted the condition of a deletion
 * @param source the source of the changes
 * @param refuse whether a delivery that can't be applied is refused
 */
public record Hook(
        String scheme, List<String> secrets, HookSignature signature, String object, String id, List<HookCondition> only, HookCondition deleted,
        String source, Boolean refuse) {}
