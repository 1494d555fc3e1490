"""Records through user code, between the source and the target of the raw lane.

    Source --stored batches--> RecordWindow --chunks--> Handlers --> process of the handler
                                    |                                 decode, handle, encode
    Target <--one window for each <-+-- parts <---------------------- batches for the target
              target partition

Fetching and producing are the raw lane's, with all their rules; what lies between differs (`partition`).
The user's code, decoding and compression run in the handler's process (`host`), so neither can block the
copier's loop. The position of a partition never passes a record whose outputs are not all acknowledged
(`window`).
"""
