# The image of all services: one static executable and nothing else. Made by deploy/build.
FROM scratch
COPY hyloc /usr/bin/hyloc
# Nobody.
USER 65534:65534
ENTRYPOINT ["/usr/bin/hyloc"]
CMD ["--help"]
