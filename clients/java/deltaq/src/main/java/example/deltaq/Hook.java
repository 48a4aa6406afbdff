package example.deltaq;

import java.util.List;

/**
 * The webhooks of a vendor that a queue takes as changes.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
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
        String source, Boolean refuse) {
    /**
     * The webhooks of a scheme, with the defaults of the server.
     *
     * @param scheme standard, github, stripe, shopify, slack, gitlab or hmac
     * @return the value
     */
    public static Hook of(String scheme) {
        return new Hook(scheme, null, null, null, null, null, null, null, null);
    }

    /**
     * The same with secrets.
     *
     * @param value the names of the secrets of which one has signed a delivery
     * @return a new value
     */
    public Hook withSecrets(List<String> value) {
        return Documents.with(this, "secrets", value);
    }

    /**
     * The same with signature.
     *
     * @param value where the signature is, with the scheme hmac
     * @return a new value
     */
    public Hook withSignature(HookSignature value) {
        return Documents.with(this, "signature", value);
    }

    /**
     * The same with object.
     *
     * @param value the JSON pointer to the stored object
     * @return a new value
     */
    public Hook withObject(String value) {
        return Documents.with(this, "object", value);
    }

    /**
     * The same with id.
     *
     * @param value header:NAME or a JSON pointer
     * @return a new value
     */
    public Hook withId(String value) {
        return Documents.with(this, "id", value);
    }

    /**
     * The same with only.
     *
     * @param value conditions of deliveries that are applied
     * @return a new value
     */
    public Hook withOnly(List<HookCondition> value) {
        return Documents.with(this, "only", value);
    }

    /**
     * The same with deleted.
     *
     * @param value the condition of a deletion
     * @return a new value
     */
    public Hook withDeleted(HookCondition value) {
        return Documents.with(this, "deleted", value);
    }

    /**
     * The same with source.
     *
     * @param value the source of the changes
     * @return a new value
     */
    public Hook withSource(String value) {
        return Documents.with(this, "source", value);
    }

    /**
     * The same with refuse.
     *
     * @param value whether a delivery that can't be applied is refused
     * @return a new value
     */
    public Hook withRefuse(boolean value) {
        return Documents.with(this, "refuse", value);
    }
}
