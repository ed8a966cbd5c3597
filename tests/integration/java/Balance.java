import com.google.gson.Gson;
import embag.v1.BagQuery;
import embag.v1.EmbeddingBagGrpc;
import embag.v1.EmbeddingBagGrpc.EmbeddingBagBlockingStub;
import embag.v1.LookupRequest;
import io.grpc.EquivalentAddressGroup;
import io.grpc.ManagedChannel;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.StatusOr;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;

/**
 * Makes lookups with grpc-java over a channel with a service configuration, as balance.py asks.
 * balance_client.py describes its arguments, input and output.
 */
public class Balance {
    static final int WORKERS = 4;
    static final int PAUSE_MS = 20;
    static final LookupRequest REQUEST = LookupRequest.newBuilder().setModel("spec").addQueries(
        BagQuery.newBuilder().setTable("emb_table").addIndices(0).addIndices(2).setNumBags(1))
        .build();

    /** Resolves "servers:" to a fixed list of addresses. */
    static class Servers extends NameResolverProvider {
        final List<EquivalentAddressGroup> groups = new ArrayList<>();

        Servers(String addresses) {
            for (String address : addresses.split(",")) {
                String[] parts = address.split(":");
                groups.add(new EquivalentAddressGroup(
                    new InetSocketAddress(parts[0], Integer.parseInt(parts[1]))));
            }
        }

        @Override public NameResolver newNameResolver(URI target, NameResolver.Args args) {
            return new NameResolver() {
                @Override public String getServiceAuthority() {
                    return "embag";
                }

                @Override public void start(Listener2 listener) {
                    listener.onResult(ResolutionResult.newBuilder()
                        .setAddressesOrError(StatusOr.fromValue(groups)).build());
                }

                @Override public void shutdown() {
                }
            };
        }

        @Override public String getDefaultScheme() {
            return "servers";
        }

        @Override protected boolean isAvailable() {
            return true;
        }

        @Override protected int priority() {
            return 5;
        }
    }

    final EmbeddingBagBlockingStub stub;
    Map<Long, Integer> counts = new TreeMap<>();
    int failed;
    String why = "";

    Balance(ManagedChannel channel) {
        stub = EmbeddingBagGrpc.newBlockingStub(channel);
    }

    synchronized void count(long version) {
        counts.merge(version, 1, Integer::sum);
    }

    synchronized void fail(StatusRuntimeException error) {
        failed++;
        why = error.getMessage();
    }

    /** Returns the results since the last call, as a line. */
    synchronized String take() {
        StringBuilder line = new StringBuilder();
        counts.forEach((version, count) -> line.append(version + ":" + count + " "));
        line.append("failed:" + failed + " " + why);
        counts = new TreeMap<>();
        failed = 0;
        return line.toString();
    }

    void work() {
        while (true) {
            try {
                count(stub.lookup(REQUEST).getVersion());
            } catch (StatusRuntimeException error) {
                fail(error);
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    public static void main(String[] args) throws Exception {
        NameResolverRegistry.getDefaultRegistry().register(new Servers(args[1]));
        Map<String, ?> config = new Gson().fromJson(Files.readString(Path.of(args[0])), Map.class);
        Balance balance = new Balance(NettyChannelBuilder.forTarget("servers:///embag")
            .usePlaintext().defaultServiceConfig(config).build());
        try {
            balance.stub.lookup(REQUEST);
        } catch (StatusRuntimeException error) {
            System.out.println(error.getStatus().getCode());
            System.exit(0);
        }
        System.out.println("OK");
        for (int i = 0; i < WORKERS; i++) {
            new Thread(balance::work).start();
        }
        for (Scanner input = new Scanner(System.in); input.hasNextLine();) {
            input.nextLine();
            System.out.println(balance.take());
        }
        System.exit(0);
    }
}
