package example.deltaq;

/**
 * Where a delivery of the scheme hmac has its signature.
 *
 * @param header the header
 * @param prefix the text before the signature
 * @param encoding hex or base64
 * @param timestampHeader the header with the time of the delivery
 */
public record HookSignature(String header, String prefix, String encoding, String timestampHeader) {}
